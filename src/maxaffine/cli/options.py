"""The options that several commands share, each written once."""

from typing import Annotated

import typer

from maxaffine.cli import completion

Expression = Annotated[
    str,
    typer.Argument(
        metavar="EXPR|NAME", help="An expression, or the name of a gallery entry.", autocompletion=completion.entries
    ),
]
LayerFile = Annotated[str, typer.Argument(metavar="FILE", help="A layer saved by `maxaffine compile --out`.")]
BoxOption = Annotated[
    list[str] | None, typer.Option("--box", metavar="x=LOW:HIGH,..", help="The range of every variable; x1..x20=-1:1 for many.")
]
Query = Annotated[
    list[str] | None, typer.Option("--query", metavar="q=LOW:HIGH,..", help="Two inputs, with --context: the query's variables.")
]
Context = Annotated[
    list[str] | None, typer.Option("--context", metavar="k=LOW:HIGH,..", help="And the context's, of which keys are made.")
]
Sequence = Annotated[
    str | None, typer.Option("--sequence", metavar="d=D,n=N", help="N tokens of D numbers x[i,j]; x=LOW:HIGH is their range.")
]
Norm = Annotated[str, typer.Option(metavar="inf|1|2|P", help="The norm of the error: sup norm, or L_p.")]
Relative = Annotated[
    str | None, typer.Option(metavar="[pointwise]", help="In units of sup |f|; pointwise: of |f(x)| at every x.")
]
Dtype = Annotated[str, typer.Option(metavar="float64|float32|bfloat16", help="What the layer is stored and run in.")]
Lipschitz = Annotated[
    str | None, typer.Option(metavar="L1,L2,..", help="Declare Lipschitz constants, one per variable; one alone is Euclidean.")
]
Gap = Annotated[
    str | None, typer.Option(metavar="G", help="Sup norm of a target that jumps: exclude points within G of a jump.")
]
TableFile = Annotated[
    str | None, typer.Option("--table", metavar="F.npz|.csv|.nc", help="A table or samples: .npz, .npy, .csv, NetCDF.")
]
Values = Annotated[str | None, typer.Option(metavar="NAME", help="--table: which array, column or variable holds the values.")]
Axes = Annotated[str | None, typer.Option(metavar="x,y,..", help="--table: which arrays or columns are the axes.")]
Figure = Annotated[str | None, typer.Option(metavar="F.png", help="Draw it: .png, .svg or .pdf.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print nothing and show no progress; errors excepted.")]
Missing = Annotated[
    str | None, typer.Option(metavar="refuse|ignore", help="--table: refuse missing values, or leave them out of the proof.")
]
Method = Annotated[
    str, typer.Option(
        metavar="NAME", help="auto, or a head of the list below; nearest with --table.", autocompletion=completion.methods
    ),
]
Literal = Annotated[
    bool, typer.Option("--literal", help="The softmax over all tokens (matrices, MultiheadAttention) must meet it too.")
]
Sharpness = Annotated[
    str | None, typer.Option(metavar="R", help="Multiply every logit by R once compiled: the layer at another temperature.")
]
Layers = Annotated[
    str, typer.Option(metavar="N|auto", help="Attention layers that a formula may take; auto: as many as need the fewest tokens.")
]
MaxBytes = Annotated[
    str | None, typer.Option(metavar="2GiB", help="Memory the compile may take; by default half of what is free.")
]
Timeout = Annotated[
    str | None, typer.Option(metavar="SECONDS", help="Time for the search; then the best layer so far, or how close it came.")
]
Verbose = Annotated[
    bool, typer.Option("--verbose", help="Also print the parts of the bound, every way to run the layer, what was tried.")
]
