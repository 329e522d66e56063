"""The commands by name; the module of a command is imported when the command is asked for."""

from importlib import import_module
from importlib.util import find_spec
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from maxaffine import __version__
from maxaffine.cli import completion
from maxaffine.cli.streams import say

COMMANDS = (
    "compile", "check", "plan", "sweep", "eval", "export", "gallery", "inspect", "meanfield", "margin", "lab", "attack",
    "studio", "doctor",
)
GROUPS = {
    "meanfield": "Exact mean-field theory of a softmax attention layer: risk, phases, dynamics, simulation.",
    "lab": "Repeat the experiments of the papers: resumable, recorded, each with a verdict.",
}


def _loaded(name: str | None) -> Any:
    """The application of a module beside this one, as a command; `single` made it without completion or markup."""
    return get_command(import_module(f"maxaffine.cli.{name}").app)


class LazyGroup(TyperGroup):
    """A command with commands of its own, whose module is imported when one of those is asked for."""

    def __init__(self, name: str, words: str) -> None:
        super().__init__(name=name, help=words, no_args_is_help=True, rich_markup_mode=None)

    def list_commands(self, ctx: Any) -> list[str]:
        """The names of its commands."""
        return list(_loaded(self.name).list_commands(ctx))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """One of its commands."""
        return _loaded(self.name).get_command(ctx, cmd_name)


class Commands(TyperGroup):
    """A group whose commands are the modules beside this one, each with a typer application called `app`."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The names, in the order of use."""
        return [name for name in COMMANDS if find_spec(f"maxaffine.cli.{name}") is not None]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command, or None for a name that does not exist."""
        if cmd_name not in self.list_commands(ctx):
            return None
        if cmd_name in GROUPS:
            return LazyGroup(cmd_name, GROUPS[cmd_name])
        command = _loaded(cmd_name)
        command.name = cmd_name
        return command

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The shell of --show-completion and --install-completion may be left out."""
        if args[:1] in (["--show-completion"], ["--install-completion"]) and (len(args) == 1 or args[1].startswith("-")):
            args = [args[0], completion.DETECT, *args[1:]]
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that the arguments begin with; for an unknown one the error names those that exist."""
        if args and args[0] not in self.list_commands(ctx):
            from difflib import get_close_matches

            near = get_close_matches(args[0], COMMANDS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(self.list_commands(ctx))}."
            ctx.fail(f"there is no command {args[0]!r}; {hint}")
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=Commands, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False, subcommand_metavar="COMMAND ..."
)


def _version(wanted: bool) -> None:
    if wanted:
        say(f"maxaffine {__version__}")
        raise typer.Exit


def _show_completion(shell: str | None) -> None:
    if shell is not None:
        completion.show(shell)
        raise typer.Exit


def _install_completion(shell: str | None) -> None:
    if shell is not None:
        completion.install(shell)
        raise typer.Exit


@app.callback(epilog="maxaffine COMMAND --help says more about one of them.")
def _callback(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
    show_completion: Annotated[
        str | None,
        typer.Option(metavar="[SHELL]", callback=_show_completion, is_eager=True, help="Print the script that completes at Tab."),
    ] = None,
    install_completion: Annotated[
        str | None,
        typer.Option(metavar="[SHELL]", callback=_install_completion, is_eager=True, help="Write it where the shell looks."),
    ] = None,
) -> None:
    """Compile functions into the weights of one softmax attention layer, with a proved error."""
