"""The command `maxaffine`: hand the arguments to a command, and turn whatever it raises into an exit code.

    0   done                         2    bad input or a refusal: one sentence on standard error, nothing written
    1   `check` could not prove      70   a fault of maxaffine itself, with its traceback
    130 interrupted                  141  the reader of standard output went away

Under the sentence of a refusal stands what was tried before, a line each.

Nothing but the standard library is imported before the arguments are looked at, so that an interrupt during a slow import
is answered like any other.
"""

import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from maxaffine import __version__
from maxaffine.core.errors import MaxaffineError

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
                code = _run(given or ["--help"])
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except MaxaffineError as failure:
        return _answer("\n  ".join([str(failure), *getattr(failure, "__notes__", ())]), REFUSED)
    except KeyboardInterrupt:
        return _answer("interrupted; nothing half-written was left.", INTERRUPTED)
    except BrokenPipeError:
        return _abandon_stdout()
    except MemoryError:
        return _answer(
            "the memory did not suffice; ask for a larger `error` or fewer points at a time, or set --max-bytes.", REFUSED
        )
    except OSError as failure:
        where = f" {failure.filename!r}" if failure.filename is not None else ""
        return _answer(f"the system refused{where}: {failure.strerror or failure}.", REFUSED)
    except Exception:
        _answer("sorry, this is a fault of maxaffine; please report it with the lines below.", FAULT)
        with suppress(OSError, ValueError):
            traceback.print_exc()
        return FAULT


def _run(given: list[str]) -> int:
    """Parse and invoke; typer's own way out (its colours, its messages, its exit codes) is not used."""
    import typer
    from typer.main import get_command

    from maxaffine.cli.registry import app

    # typer brings its own copy of click or uses the installed one, by version; the error classes are found either way.
    usage_error: Any = next(cls for cls in typer.BadParameter.__mro__ if cls.__name__ == "ClickException")
    if sys.stdout is not None and hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")
    command: Any = get_command(app)
    try:
        with command.make_context("maxaffine", given) as context:
            result = command.invoke(context)
    except typer.Exit as leaving:
        return int(leaving.exit_code)
    except typer.Abort:
        raise KeyboardInterrupt from None
    except usage_error as failure:
        return _answer(_usage_sentence(failure), REFUSED)
    return result if isinstance(result, int) else 0


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
