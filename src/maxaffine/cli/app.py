"""The command `maxaffine`: hand the arguments to a command, and turn whatever it raises into an exit code.

    0   done                         2    bad input or a refusal: one sentence on standard error, nothing written
    1   `check` could not prove      70   a fault of maxaffine itself, with its traceback
    130 interrupted                  141  the reader of standard output went away

A refusal says the reason, the nearest error within reach and a command to try; `--verbose` adds what was tried, a line each.
With `--json` it is an object on standard output as well: refused, reason, nearest_error, try, tried.

Nothing but the standard library is imported before the arguments are looked at, so that an interrupt during a slow import
is answered like any other.
"""

import os
import shlex
import sys
import traceback
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from maxaffine import __version__
from maxaffine.core.errors import BadInput, MaxaffineError, Refused

REFUSED, FAULT, INTERRUPTED, PIPE_CLOSED = 2, 70, 130, 141


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; `arguments` default to those of the process."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if given == ["--version"]:
            code = _print_version()
        else:
            with warnings.catch_warnings():
                warnings.showwarning = _show_warning
                warnings.filterwarnings("ignore", "`attention=`")  # --attention says so itself
                code = _run(given or ["--help"])
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except MaxaffineError as failure:
        return _refuse(failure, given)
    except KeyboardInterrupt:
        return _answer("interrupted; nothing half-written was left.", INTERRUPTED)
    except BrokenPipeError:
        return _abandon_stdout()
    except MemoryError:
        return _refuse(MaxaffineError("out of memory; ask for a larger `error` or fewer points, or set --max-bytes."), given)
    except OSError as failure:
        where = f" {failure.filename!r}" if failure.filename is not None else ""
        return _refuse(MaxaffineError(f"the system refused{where}: {failure.strerror or failure}."), given)
    except Exception:
        _answer("sorry, this is a fault of maxaffine; please report it with the lines below.", FAULT)
        with suppress(OSError, ValueError):
            traceback.print_exc()
        return FAULT


def _run(given: list[str]) -> int:
    """Parse and invoke; typer's own way out (its colours, its messages, its exit codes) is not used."""
    import typer
    from typer.main import get_command

    from maxaffine.cli import completion
    from maxaffine.cli.registry import app

    # typer brings its own copy of click or uses the installed one, by version; the error classes are found either way.
    usage_error: Any = next(cls for cls in typer.BadParameter.__mro__ if cls.__name__ == "ClickException")
    if sys.stdout is not None and hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")
    command: Any = get_command(app)
    if completion.is_asked():
        return completion.answer(command)
    try:
        with command.make_context("maxaffine", given) as context:
            result = command.invoke(context)
    except typer.Exit as leaving:
        return int(leaving.exit_code)
    except typer.Abort:
        raise KeyboardInterrupt from None
    except usage_error as failure:
        raise BadInput(_usage_sentence(failure)) from None
    return result if isinstance(result, int) else 0


def _refuse(failure: MaxaffineError, given: Sequence[str]) -> int:
    """Reason, nearest error, a command to try; what was tried with --verbose; with --json the same as an object."""
    found: dict[str, Any] = {"refused": "input", "reason": str(failure), "nearest_error": None, "try": None, "tried": []}
    lines = [str(failure)]
    if isinstance(failure, Refused):
        command = _command(given, failure.remedy) if failure.remedy else None
        found = {"refused": "request", "reason": failure.reason, "nearest_error": failure.nearest_error, "try": command}
        found["tried"] = list(failure.tried)
        lines = [failure.summary, *([] if command is None else [f"try: {command}"])]
    tried = found["tried"]
    if "--verbose" in given:
        lines += [f"tried {line}" for line in tried]
    elif tried:
        lines.append(f"--verbose lists what was tried ({len(tried)} line{'s' if len(tried) > 1 else ''}).")
    if "--json" in given:
        from maxaffine.cli.streams import say_json

        say_json(found)
    return _answer("\n  ".join(lines), REFUSED)


def _command(given: Sequence[str], remedy: Mapping[str, Any]) -> str:
    """The same command with other options."""
    words = list(given)
    for name, value in remedy.items():
        option, text = f"--{name.replace('_', '-')}", f"{value:g}" if isinstance(value, float) else str(value)
        places = [k for k, word in enumerate(words) if word == option or word.startswith(f"{option}=")]
        if places and words[places[0]] == option:
            words[places[0] + 1 : places[0] + 2] = [text]
        elif places:
            words[places[0]] = f"{option}={text}"
        else:
            words += [option, text]
    return shlex.join(["maxaffine", *words])


def _usage_sentence(failure: Any) -> str:
    message = str(failure.format_message()).strip()
    context = getattr(failure, "ctx", None)
    path = getattr(context, "command_path", None) or "maxaffine"
    return f"{message}{'' if message.endswith(('.', '?')) else '.'} See {path} --help."


def _print_version() -> int:
    from maxaffine.cli.streams import say

    say(f"maxaffine {__version__}")
    return 0


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    _answer(f"warning: {message}", 0)


def _answer(sentence: str, code: int) -> int:
    from maxaffine.cli.streams import complain

    complain(sentence)
    return code


def _abandon_stdout() -> int:
    """The reader left; keep the interpreter from complaining about it once more at exit."""
    with suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return PIPE_CLOSED
