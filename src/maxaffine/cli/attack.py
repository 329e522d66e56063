"""`maxaffine attack`: try to break the proofs with random layers, perturbed layers and a search for the worst point."""

from typing import Annotated, Any

import typer

from maxaffine.cli.command import Command, single
from maxaffine.cli.streams import complain, progress_bar, say, say_json
from maxaffine.core.errors import BadInput

VIOLATED = 1

app = single()


@app.command("attack", cls=Command)
def run(
    layers: Annotated[int, typer.Option("--layers", help="How many layers to attack.")] = 500,
    seed: Annotated[int, typer.Option("--seed", help="Of the targets, perturbations and searches.")] = 0,
    seconds: Annotated[float | None, typer.Option("--seconds", help="Stop after this time.")] = None,
    heads: Annotated[str | None, typer.Option("--heads", help="Head by head: \"all\", or names such as axis;regions.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> int:
    """Attack the proofs: random targets, keys and values perturbed, dtypes mixed, errors maximised from many starts.

    With --heads every head of hard targets is attacked in turn, --layers of each: in every runtime as compiled, and with its
    stored numbers moved and proved anew by the checker and by its certificate.
    Exit code 0 when no point lies above a proved bound, 1 otherwise.
    """
    if layers < 1 or seed < 0 or (seconds is not None and not seconds > 0):
        raise BadInput("`--layers` must be at least 1, `--seed` not negative and `--seconds` positive.")
    if heads is not None:
        return _head_by_head(heads, layers, seed, seconds, json)
    from maxaffine.certify.attack import attack
    from maxaffine.compiler import compile

    with progress_bar() as progress:
        tally = attack(compile, layers=layers, seed=seed, seconds=seconds, progress=progress)
    if json:
        say_json({**tally.to_json(), "seed": seed})
    else:
        kinds = ", ".join(f"{count} {name}" for name, count in sorted({**tally.by_dtype, **tally.by_route}.items()))
        say(f"layers      {tally.layers} ({kinds}), seed {seed}, {tally.seconds:.0f} s")
        say(f"proved      {tally.proved}; {tally.refused} other requests were refused")
        say(f"perturbed   {tally.perturbed} certified anew, {tally.rechecked} by the checker; {tally.unprovable} refused a proof")
        say(f"searches    {tally.points}, each from hundreds of starts, one per runtime")
        say(f"worst       observed/proved = {tally.worst:.4f}  ({tally.worst_case})")
        say(f"violations  {len(tally.violations)}")
    return _verdict(tally.violations)


def _head_by_head(heads: str, layers: int, seed: int, seconds: float | None, json: bool) -> int:
    from maxaffine.certify.attack_every import attack_heads, table
    from maxaffine.compiler import compile

    names = None if heads == "all" else [name.strip() for name in heads.split(";")]
    with progress_bar() as progress:
        rows = attack_heads(compile, names, layers=layers, seed=seed, seconds=seconds, progress=progress)
    if json:
        say_json({"seed": seed, "heads": [row.to_json() for row in rows]})
    else:
        say(table(rows))
    return _verdict([one for row in rows for one in row.violations])


def _verdict(violations: list[dict[str, Any]]) -> int:
    for one in violations[:20]:
        complain(f"{one['what']}: found {one['found']!r} above the bound {one['bound']!r} at {one['at']} for {one['target']}")
    return VIOLATED if violations else 0
