"""What functions of NumPy, SciPy, torch, JAX and SymPy mean in the language, number by number.

Every entry makes the symbol of one number from those of its arguments.  A name that is missing here has no meaning in it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

from maxaffine.expression.functions import ALIASES, ARITIES, AT_NUMBERS, UNARY, WITH_NUMBERS
from maxaffine.tracing.record import Recorder, Symbol

Meaning = Callable[..., Symbol]

PI = Symbol("name", (), "pi")


def truth(r: Recorder, value: bool) -> Symbol:
    """A condition that is known."""
    return Symbol("==", (r.number(0), r.number(0 if value else 1)))


def known(a: Symbol) -> bool | None:
    """What a condition is that does not depend on the point; None where it does."""
    if a.op != "==" or any(one.op != "number" for one in a.args):
        return None
    return a.args[0].text == a.args[1].text


def number(r: Recorder, a: Symbol) -> Symbol:
    """A condition as 1 or 0, a number as it is."""
    if not a.is_condition:
        return a
    said = known(a)
    return r.number(int(said)) if said is not None else r.make("where", a, r.number(1), r.number(0))


def condition(r: Recorder, a: Symbol) -> Symbol:
    """A number as whether it differs from 0, a condition as it is."""
    if a.is_condition:
        return a
    return truth(r, a.value != 0) if a.value is not None else r.make("!=", a, r.number(0))


def call(name: str) -> Meaning:
    """The function of this name of the grammar, or an operator."""
    return lambda r, *args: r.make(name, *(number(r, a) for a in args))


def of_numbers(meaning: Meaning) -> Meaning:
    """A meaning that is given numbers, 1 and 0 for conditions."""
    return lambda r, *args: meaning(r, *(number(r, a) for a in args))


def both(word: str, plain: Meaning) -> Meaning:
    """What the libraries make of two conditions, a condition again; of other numbers the plain meaning."""
    return lambda r, a, b: joined(word)(r, a, b) if a.is_condition and b.is_condition else plain(r, a, b)


def product(r: Recorder, a: Symbol, b: Symbol) -> Symbol:
    """a*b, where a condition times a number chooses it or 0."""
    for c, other in ((a, b), (b, a)):
        if c.is_condition and known(c) is None:
            return r.make("where", c, number(r, other), r.number(0))
    return r.make("*", number(r, a), number(r, b))


def _difference(r: Recorder, a: Symbol, b: Symbol) -> Symbol:
    if a.is_condition and b.is_condition:
        raise r.stop("a condition is subtracted from another", "use np.where to make numbers of them")
    return r.make("-", number(r, a), number(r, b))


def negative(r: Recorder, a: Symbol) -> Symbol:
    """-a."""
    if a.is_condition:
        raise r.stop("a condition has a sign in front", "use ~ for the opposite, or np.where to make a number of it")
    return r.number(-a.value) if a.value is not None else r.make("neg", a)


def exclusive(r: Recorder, a: Symbol, b: Symbol) -> Symbol:
    """Either of two conditions and not both."""
    a, b = condition(r, a), condition(r, b)
    either, each, no = joined("or"), joined("and"), joined("not")
    return either(r, each(r, a, no(r, b)), each(r, no(r, a), b))


def joined(word: str) -> Meaning:
    """Conditions joined by a word of the grammar; those that are known are left out."""

    def meaning(r: Recorder, *args: Symbol) -> Symbol:
        conditions = [condition(r, a) for a in args]
        said = [known(c) for c in conditions]
        if word == "not":
            return truth(r, not said[0]) if said[0] is not None else r.make("not", conditions[0])
        decides = word == "or"
        if decides in said:
            return truth(r, decides)
        left = [c for c, s in zip(conditions, said, strict=True) if s is None]
        return reduce(lambda a, b: r.make(word, a, b), left) if left else truth(r, not decides)

    return meaning


def bits(word: str) -> Meaning:
    """The same for `&`, `|` and `~`, which mean something else of numbers."""

    def meaning(r: Recorder, *args: Symbol) -> Symbol:
        if not all(a.is_condition for a in args):
            raise r.stop("`&`, `|`, `^` or `~` stand beside numbers", "they are for conditions, such as x > 0")
        return exclusive(r, *args) if word == "xor" else joined(word)(r, *args)

    return meaning


def choice(r: Recorder, c: Symbol, a: Symbol, b: Symbol) -> Symbol:
    """where(c, a, b); of two conditions one of them."""
    c = condition(r, c)
    said = known(c)
    if said is not None:
        return a if said else b
    if a.is_condition and b.is_condition:
        return joined("or")(r, joined("and")(r, c, a), joined("and")(r, joined("not")(r, c), b))
    return r.make("where", c, number(r, a), number(r, b))


def _floor_divide(r: Recorder, a: Symbol, b: Symbol) -> Symbol:
    return r.make("floor", _divide(r, a, b))


def _remainder(r: Recorder, a: Symbol, b: Symbol) -> Symbol:
    return r.make("-", number(r, a), r.make("*", number(r, b), _floor_divide(r, a, b)))


def _trunc(r: Recorder, a: Symbol) -> Symbol:
    return r.make("where", r.make("<", a, r.number(0)), r.make("ceil", a), r.make("floor", a))


def _heaviside(r: Recorder, a: Symbol, at: Symbol) -> Symbol:
    zero = r.number(0)
    return r.make("piecewise", r.make("<", a, zero), zero, r.make("==", a, zero), at, r.number(1))


def _logaddexp(r: Recorder, a: Symbol, b: Symbol) -> Symbol:
    return r.make("+", b, r.make("softplus", r.make("-", a, b)))


def _divide(r: Recorder, a: Symbol, b: Symbol) -> Symbol:
    return r.make("/", number(r, a), number(r, b))


def _turned(above: Symbol | int, below: Symbol | int) -> Meaning:
    def meaning(r: Recorder, a: Symbol) -> Symbol:
        top, bottom = (r.number(x) if isinstance(x, int) else x for x in (above, below))
        return r.make("/", r.make("*", a, top), bottom)

    return of_numbers(meaning)


def _xlogy(r: Recorder, a: Symbol, b: Symbol) -> Symbol:
    return r.make("*", a, r.make("log", b))


def _gelu_tanh(r: Recorder, a: Symbol) -> Symbol:
    """x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), torch's gelu with approximate="tanh"."""
    cubic = r.make("+", a, r.make("*", r.number(0.044715), r.make("**", a, r.number(3))))
    inner = r.make("*", r.make("sqrt", r.make("/", r.number(2), PI)), cubic)
    return r.make("*", r.make("/", a, r.number(2)), r.make("+", r.number(1), r.make("tanh", inner)))


def _second(name: str, usual: int) -> Meaning:
    """A function of one number in the language, whose second argument is the usual one."""

    def meaning(r: Recorder, a: Symbol, second: Symbol, *_: Symbol) -> Symbol:
        if second.value != usual:
            raise r.stop(f"`{name}` is called with a second argument that is not {usual}", "the language has the usual one only")
        return r.make(name, number(r, a))

    return meaning


def _first(r: Recorder, a: Symbol, *_: Symbol) -> Symbol:
    return number(r, a)


PLAIN = (
    "atan2", "hypot", "min", "max", "ceil", "exp2", "log2", "log10", "relu", "beta", "gelu", "silu", "logit", *AT_NUMBERS,
    *WITH_NUMBERS,
)  # fmt: skip

MEANINGS: dict[str, Meaning] = {
    **{name: call(name) for name in UNARY},
    **{name: call(plain) for name, plain in ALIASES.items() if plain in ARITIES and plain not in ("mul", "divide")},
    **{name: call(name) for name in PLAIN},
    "add": both("or", call("+")), "subtract": _difference, "sub": _difference,
    "multiply": both("and", product), "mul": both("and", product),
    "maximum": both("or", call("max")), "minimum": both("and", call("min")),
    "divide": _divide, "true_divide": _divide, "div": _divide,
    "power": call("**"), "float_power": call("**"), "pow": call("**"),
    "negative": negative, "neg": negative, "positive": _first, "conjugate": _first, "real": _first,
    "floor_divide": _floor_divide, "remainder": _remainder, "mod": _remainder,
    "trunc": of_numbers(_trunc), "heaviside": of_numbers(_heaviside),
    "square": lambda r, a: r.make("**", number(r, a), r.number(2)),
    "reciprocal": of_numbers(lambda r, a: r.make("/", r.number(1), a)),
    "rsqrt": of_numbers(lambda r, a: r.make("/", r.number(1), r.make("sqrt", a))),
    "radians": _turned(PI, 180), "deg2rad": _turned(PI, 180), "degrees": _turned(180, PI), "rad2deg": _turned(180, PI),
    "logaddexp": of_numbers(_logaddexp),
    "less": call("<"), "less_equal": call("<="), "greater": call(">"), "greater_equal": call(">="),
    "equal": call("=="), "not_equal": call("!="), "lt": call("<"), "le": call("<="), "gt": call(">"), "ge": call(">="),
    "eq": call("=="), "ne": call("!="),
    "logical_and": joined("and"), "logical_or": joined("or"), "logical_not": joined("not"), "logical_xor": exclusive,
    "bitwise_and": bits("and"), "bitwise_or": bits("or"), "invert": bits("not"), "bitwise_not": bits("not"),
    "bitwise_xor": bits("xor"),
    "where": choice,
    # scipy.special
    "gammaln": call("loggamma"), "_lambertw": _second("lambertw", 0),
    "_zeta": _second("zeta", 1), "_riemann_zeta": call("zeta"), "jn": call("jv"), "_ellip_k": call("ellipk"),
    "log_expit": lambda r, a: r.make("neg", r.make("softplus", r.make("neg", a))),
    "xlogy": of_numbers(_xlogy), "xlog1py": of_numbers(lambda r, a, b: r.make("*", a, r.make("log1p", b))),
    "cosm1": lambda r, a: r.make("*", r.number(-2), r.make("**", r.make("sin", r.make("/", a, r.number(2))), r.number(2))),
    "gelu_tanh": _gelu_tanh, "logsigmoid": lambda r, a: r.make("neg", r.make("softplus", r.make("neg", a))),
}  # fmt: skip
"""Names, as the libraries have them, and what they mean."""

SEVERAL: dict[str, tuple[Meaning, ...]] = {
    "sici": (call("si"), call("ci")),
    "fresnel": (call("fresnel_s"), call("fresnel_c")),
    "airy": (call("airy_ai"), call("airy_aip"), call("airy_bi"), call("airy_bip")),
    "modf": (lambda r, a: r.make("-", a, _trunc(r, a)), _trunc),
    "divmod": (_floor_divide, _remainder),
}
"""Functions of several results."""
