"""`maxaffine studio`: a page on this machine where a function is typed, and its layer is seen, turned and taken away."""

from importlib import import_module
from importlib.util import find_spec
from typing import Annotated

import typer

from maxaffine.cli.command import Command, single
from maxaffine.cli.streams import say
from maxaffine.core.errors import BadInput

app = single()


@app.command("studio", cls=Command)
def run(
    port: Annotated[str, typer.Option(metavar="N", help="The port; 0 for one that is free.")] = "0",
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Print the address alone.")] = False,
) -> None:
    """Open a page where functions are compiled, looked at and turned.

    \b
      maxaffine studio
      maxaffine studio --port 8123 --no-browser
    """
    from maxaffine.cli import arguments

    number = arguments.whole(port, "`port`")
    if not 0 <= number < 65536:
        raise BadInput(f"`port` (={port}) must be a number from 0 to 65535.")
    if find_spec("nicegui") is None:
        raise BadInput('the studio needs NiceGUI; install it with pip install "maxaffine[studio]".')
    # by name, since the studio stands above the command line
    import_module("maxaffine.studio.server").serve(number, browser=not no_browser, told=say)
