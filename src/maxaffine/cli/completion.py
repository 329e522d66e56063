"""Shell completion: what is asked by the shell at every Tab, and the script that teaches a shell to ask.

    maxaffine --show-completion bash      prints the script
    maxaffine --install-completion bash   writes it where the shell looks for it
"""

import os
from importlib import import_module
from pathlib import Path
from typing import Any

from maxaffine.cli.streams import say
from maxaffine.core.errors import BadInput

SHELLS = ("bash", "zsh", "fish", "powershell", "pwsh")
VARIABLE = "_MAXAFFINE_COMPLETE"  # what the script sets when it asks
DETECT = "detect"  # the option without a shell: the one that runs this program


def is_asked() -> bool:
    """Whether a shell asks what comes next."""
    return VARIABLE in os.environ


def answer(command: Any) -> int:
    """Print what may come next, for the shell that asks."""
    typer: Any = import_module("typer.completion")
    typer.completion_init()
    return int(typer.shell_complete(command, {}, "maxaffine", VARIABLE, os.environ[VARIABLE]))


def show(shell: str) -> None:
    """Print the script for a shell."""
    typer: Any = import_module("typer.completion")
    say(typer.get_completion_script(prog_name="maxaffine", complete_var=VARIABLE, shell=_known(shell)))


def install(shell: str) -> None:
    """Write the script where the shell looks for it, and say where that is."""
    typer: Any = import_module("typer.completion")
    name, path = typer.install(shell=_known(shell), prog_name="maxaffine", complete_var=VARIABLE)
    say(f"completion for {name} is in {path}; it works in the next shell you open.")


def methods(incomplete: str) -> list[tuple[str, str]]:
    """The methods that begin so, with what they are."""
    from maxaffine.heads import HEADS

    known = [("auto", "the method with the fewest tokens"), *((name, head.summary) for name, head in HEADS.items())]
    return [one for one in known if one[0].startswith(incomplete)]


def entries(incomplete: str) -> list[str]:
    """The gallery entries that begin so."""
    from maxaffine.target.collection import ENTRIES

    return [entry.name for entry in ENTRIES if entry.name.startswith(incomplete)]


def _known(shell: str) -> str:
    """The shell that was named, or the one that runs this program."""
    if shell == DETECT:
        shell = _detected()
    if shell not in SHELLS:
        raise BadInput(f"there is no completion for the shell {shell!r}; there is one for {', '.join(SHELLS)}.")
    return shell


def _detected() -> str:
    """The shell that runs this program, else the one a login would start."""
    try:
        import shellingham

        return str(shellingham.detect_shell()[0])
    except (ImportError, RuntimeError, OSError):
        pass
    login = Path(os.environ.get("SHELL", "")).name
    if login not in SHELLS:
        raise BadInput("which shell runs this could not be told; name it, such as --show-completion bash.")
    return login
