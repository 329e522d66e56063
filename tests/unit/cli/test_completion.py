"""What a shell is told at Tab, and the script that teaches it to ask."""

import subprocess

import pytest

from maxaffine.cli import completion
from maxaffine.cli.app import main
from maxaffine.heads import HEADS


@pytest.fixture
def tab(capsys, monkeypatch):
    def ask(words: str, place: int) -> list[str]:
        monkeypatch.setenv(completion.VARIABLE, "complete_bash")
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(place))
        assert main(["ignored"]) == 0
        return capsys.readouterr().out.split()

    return ask


def test_commands_options_methods_and_gallery_entries_are_completed(tab):
    assert tab("maxaffine co", 1) == ["compile"]
    assert tab("maxaffine compile --me", 2) == ["--method"]
    assert sorted(tab("maxaffine compile x --method ", 4)) == sorted(["auto", *HEADS])
    assert "franke" in tab("maxaffine compile fra", 2)
    assert tab("maxaffine meanfield ph", 2) == ["phase"]


def test_an_unfinished_line_is_no_error(tab):
    tab("maxaffine compile --error --box ", 4)
    tab("maxaffine compile --nonsense ", 3)


def test_the_script_for_bash_is_one_that_bash_reads(capsys):
    assert main(["--show-completion", "bash"]) == 0
    script = capsys.readouterr().out
    assert subprocess.run(["bash", "-n"], input=script, text=True, timeout=30).returncode == 0
    assert completion.VARIABLE in script


def test_the_shell_is_found_out_or_asked_for(capsys, monkeypatch):
    shellingham = pytest.importorskip("shellingham")

    def unknown():
        raise shellingham.ShellDetectionFailure

    monkeypatch.setattr(shellingham, "detect_shell", unknown)
    monkeypatch.setenv("SHELL", "/usr/bin/zsh")
    assert main(["--show-completion"]) == 0
    assert "compdef" in capsys.readouterr().out
    monkeypatch.setenv("SHELL", "/bin/tcsh")
    assert main(["--show-completion"]) == 2
    assert "name it, such as --show-completion bash" in capsys.readouterr().err
    assert main(["--show-completion", "tcsh"]) == 2
    assert "there is one for bash, zsh" in capsys.readouterr().err


def test_completion_is_installed_where_the_shell_looks(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert main(["--install-completion", "bash"]) == 0
    assert str(tmp_path) in capsys.readouterr().out
    (script,) = (tmp_path / ".bash_completions").iterdir()
    assert completion.VARIABLE in script.read_text()


def test_help_of_compile_lists_every_method_with_what_it_is(capsys):
    assert main(["compile", "--help"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    for name, head in HEADS.items():
        assert f"{name} {head.summary}" in told
