"""The formulas of the gallery.

`lipschitz` is the exact sup of |df/dx_i| over the box per axis, `extremes` the exact range, `minimum` a point with the least
value; each only where it is known in closed form or from the source to the digits given.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import pi
from typing import Any

from maxaffine.target.box import Box
from maxaffine.target.sequence_collection import MAPS
from maxaffine.target.target import Target

TAGS = ("smooth", "oscillating", "edge-singular", "kinked", "discontinuous", "sequence", "pair")
"""What a target is like."""


@dataclass(frozen=True)
class Entry:
    """One named target: where it lives, how it is written, where it comes from and what is known about it."""

    name: str
    box: Box | tuple[Box, Box]
    text: str
    source: str
    tags: tuple[str, ...]
    lipschitz: tuple[float, ...] | None = None
    extremes: tuple[float, float] | None = None
    minimum: tuple[tuple[float, ...], float] | None = None
    output_shape: tuple[int, ...] | None = None
    function: Callable[..., Any] | None = None

    @cached_property
    def target(self) -> Target:
        """The entry as a target."""
        return Target.of(self.function or self.text, self.box, output_shape=self.output_shape, name=self.name)

    @property
    def dimension(self) -> int:
        """The number of coordinates D."""
        return sum(box.dimension for box in self.box) if isinstance(self.box, tuple) else self.box.dimension

    @property
    def facts(self) -> dict[str, object]:
        """What is known, by name."""
        known = {"lipschitz": self.lipschitz, "extremes": self.extremes, "minimum": self.minimum}
        return {key: value for key, value in known.items() if value is not None}


def _cube(dimension: int, low: float = 0.0, high: float = 1.0) -> Box:
    return Box.named([f"x{i + 1}" for i in range(dimension)], low, high)


def _square(low: float = -1.0, high: float = 1.0) -> Box:
    return Box.named(["x", "y"], low, high)


def _bessel(x: Any) -> Any:
    from scipy.special import j0

    return j0(x[:, 0])


_SFU = "Surjanovic, Bingham: Virtual Library of Simulation Experiments"
_GENZ = "Genz: A package for testing multiple integration subroutines, 1987"
_PAPER = "Liu, Hu, Song, Liu: Attention Mechanism, Max-Affine Partition, and Universal Approximation, 2025"

_LINE = (
    Entry("sine", Box(x=(-pi, pi)), "sin(x)", "elementary", ("smooth",), (1.0,), (-1.0, 1.0)),
    Entry("runge", Box(x=(-1, 1)), "1/(1 + 25*x**2)", "Runge 1901", ("smooth",), (15 * math.sqrt(3) / 8,), (1 / 26, 1.0)),
    Entry("chirp", Box(x=(0, 2)), "sin(20*x**2)", "elementary: frequency grows like 40 x", ("smooth", "oscillating"), None,
        (-1.0, 1.0)),
    Entry("gramacy_lee", Box(x=(0.5, 2.5)), "sin(10*pi*x)/(2*x) + (x - 1)**4", "Gramacy, Lee 2012", ("smooth", "oscillating"),
        None, None, ((0.548563,), -0.869011)),
    Entry("forrester", Box(x=(0, 1)), "(6*x - 2)**2*sin(12*x - 4)", "Forrester, Sobester, Keane 2008", ("smooth",), None, None,
        ((0.757249,), -6.020740)),
    Entry("chebyshev_5", Box(x=(-1, 1)), "16*x**5 - 20*x**3 + 5*x", "Chebyshev polynomial T_5; |T_n'| <= n^2", ("smooth",),
        (25.0,), (-1.0, 1.0)),
    Entry("error_function", Box(x=(-1, 1)), "erf(5*x)", "elementary: a smooth step", ("smooth",), (10 / math.sqrt(pi),),
        (-math.erf(5), math.erf(5))),
    Entry("steep_tanh", Box(x=(-1, 1)), "tanh(20*x)", "elementary: a steep layer", ("smooth",), (20.0,),
        (-math.tanh(20), math.tanh(20))),
    Entry("narrow_bump", Box(x=(-1, 1)), "exp(-200*(x - 0.3)**2)", "elementary: a bump of width 0.05", ("smooth",),
        (20 * math.exp(-0.5),), None),
    Entry("weierstrass_5", Box(x=(-1, 1)), "cos(pi*x) + cos(3*pi*x)/2 + cos(9*pi*x)/4 + cos(27*pi*x)/8 + cos(81*pi*x)/16",
        "Weierstrass 1872, first five terms", ("smooth", "oscillating"), None, (-1.9375, 1.9375)),
    Entry("topologist", Box(x=(0.02, 1)), "x*sin(1/x)", "elementary: oscillation towards an edge", ("smooth", "oscillating")),
    Entry("square_root", Box(x=(0, 1)), "sqrt(x)", "elementary: infinite slope at an edge", ("edge-singular",), None, (0.0, 1.0)),
    Entry("semicircle", Box(x=(-1, 1)), "sqrt(1 - x**2)", "elementary: infinite slope at both edges", ("edge-singular",), None,
        (0.0, 1.0)),
    Entry("cube_root", Box(x=(-1, 1)), "cbrt(x - 0.2)", "elementary: infinite slope inside", ("edge-singular",), None,
        (-math.cbrt(1.2), math.cbrt(0.8))),
    Entry("entropy", Box(x=(1e-6, 0.999999)), "-x*log(x) - (1 - x)*log(1 - x)", "Shannon 1948: entropy of a coin",
        ("edge-singular",), None, None),
    Entry("kink", Box(x=(-1, 1)), "abs(x - 0.1)", "elementary", ("kinked",), (1.0,), (0.0, 1.1)),
    Entry("rectified_sine", Box(x=(-1, 1)), "abs(sin(7*x))", "elementary: five kinks", ("kinked", "oscillating"), (7.0,),
        (0.0, 1.0)),
    Entry("upper_envelope", Box(x=(-1, 1)), "max(sin(3*x), cos(5*x))", "elementary: the larger of two waves", ("kinked",)),
    Entry("squared_relu", Box(x=(-1, 1)), "relu(x + 0.37)**2", "elementary: a kink in the first derivative", ("kinked",),
        (2.74,), (0.0, 1.37**2)),
    Entry("hat", Box(x=(-1, 1)), "max(0, 1 - abs(3*x))", "elementary: the finite element hat", ("kinked",), (3.0,), (0.0, 1.0)),
    Entry("step", Box(x=(-1, 1)), "sign(x - 0.1)", "elementary", ("discontinuous",), None, (-1.0, 1.0)),
    Entry("staircase", Box(x=(-1, 1)), "floor(3*x)/3", "elementary: five jumps", ("discontinuous",), None, (-1.0, 1.0)),
    Entry("sawtooth", Box(x=(0, 3)), "x - floor(x)", "elementary", ("discontinuous",), None, None),
    Entry("bessel_j0", Box(x=(0, 20)), "",
        "Bessel function J_0 (scipy): a callable, so nothing can be derived; max |J_1| = 0.5819", ("smooth", "oscillating"),
        (0.581866,), None, None, None, _bessel),
)  # fmt: skip

_PLANE = (
    Entry("sin_plus_cos", _square(-pi, pi), "sin(x) + cos(y)", "elementary: the example of the documentation", ("smooth",),
        (1.0, 1.0), (-2.0, 2.0)),
    Entry("product", _square(), "x*y", "elementary: the saddle", ("smooth",), (1.0, 1.0), (-1.0, 1.0)),
    Entry("franke", _square(0.0, 1.0),
        "0.75*exp(-((9*x - 2)**2 + (9*y - 2)**2)/4) + 0.75*exp(-(9*x + 1)**2/49 - (9*y + 1)/10)"
        " + 0.5*exp(-((9*x - 7)**2 + (9*y - 3)**2)/4) - 0.2*exp(-(9*x - 4)**2 - (9*y - 7)**2)",
        "Franke: A critical comparison of some methods for interpolation of scattered data, 1979", ("smooth",)),
    Entry("peaks", _square(-3.0, 3.0),
        "3*(1 - x)**2*exp(-x**2 - (y + 1)**2) - 10*(x/5 - x**3 - y**5)*exp(-x**2 - y**2) - exp(-(x + 1)**2 - y**2)/3",
        "the peaks function of numerical software", ("smooth",), None, None, ((0.228279, -1.625535), -6.551133)),
    Entry("himmelblau", _square(-5.0, 5.0), "(x**2 + y - 11)**2 + (x + y**2 - 7)**2", "Himmelblau 1972", ("smooth",), None,
        (0.0, 890.0), ((3.0, 2.0), 0.0)),
    Entry("rosenbrock", Box(x=(-2, 2), y=(-1, 3)), "100*(y - x**2)**2 + (1 - x)**2", "Rosenbrock 1960", ("smooth",),
        (4006.0, 1000.0), (0.0, 2509.0), ((1.0, 1.0), 0.0)),
    Entry("six_hump_camel", Box(x=(-2, 2), y=(-1, 1)), "(4 - 2.1*x**2 + x**4/3)*x**2 + x*y + (4*y**2 - 4)*y**2",
        "Dixon, Szego 1978", ("smooth",), None, None, ((0.0898, -0.7126), -1.031628)),
    Entry("branin", Box(x=(-5, 10), y=(0, 15)), "(y - 5.1*x**2/(4*pi**2) + 5*x/pi - 6)**2 + 10*(1 - 1/(8*pi))*cos(x) + 10",
        "Branin 1972", ("smooth",), None, None, ((pi, 2.275), 0.397887)),
    Entry("goldstein_price", _square(-2.0, 2.0),
        "(1 + (x + y + 1)**2*(19 - 14*x + 3*x**2 - 14*y + 6*x*y + 3*y**2))"
        "*(30 + (2*x - 3*y)**2*(18 - 32*x + 12*x**2 + 48*y - 36*x*y + 27*y**2))",
        "Goldstein, Price 1971", ("smooth",), None, None, ((0.0, -1.0), 3.0)),
    Entry("mccormick", Box(x=(-1.5, 4), y=(-3, 4)), "sin(x + y) + (x - y)**2 - 1.5*x + 2.5*y + 1", _SFU, ("smooth",), None,
        None, ((-0.54719, -1.54719), -1.913223)),
    Entry("rastrigin", _square(-5.12, 5.12), "20 + x**2 - 10*cos(2*pi*x) + y**2 - 10*cos(2*pi*y)", "Rastrigin 1974",
        ("smooth", "oscillating"), None, None, ((0.0, 0.0), 0.0)),
    Entry("ackley", _square(-5.0, 5.0), "20 + e - 20*exp(-0.2*sqrt((x**2 + y**2)/2)) - exp((cos(2*pi*x) + cos(2*pi*y))/2)",
        "Ackley 1987: a cone point at the origin", ("kinked", "oscillating"), None, None, ((0.0, 0.0), 0.0)),
    Entry("tanh_ridge", _square(), "tanh(5*(x + y))", "elementary: a layer along a diagonal", ("smooth",), (5.0, 5.0),
        (-math.tanh(10), math.tanh(10))),
    Entry("near_pole", _square(), "1/(2.2 - x - y)", "elementary: a pole just outside a corner", ("smooth",), (25.0, 25.0),
        (1 / 4.2, 5.0)),
    Entry("ring", _square(), "atan(30*(x**2 + y**2 - 0.5))", "elementary: a steep circular layer", ("smooth",)),
    Entry("small_bump", _square(), "exp(-50*((x - 0.3)**2 + (y + 0.2)**2))", "elementary: a bump of width 0.1", ("smooth",),
        (10 * math.exp(-0.5), 10 * math.exp(-0.5)), None),
    Entry("drop_wave", _square(-2.0, 2.0), "-(1 + cos(12*hypot(x, y)))/(0.5*(x**2 + y**2) + 2)", _SFU,
        ("smooth", "oscillating"), None, None, ((0.0, 0.0), -1.0)),
    Entry("geometric_mean", _square(0.0, 1.0), "sqrt(x*y)", "elementary: infinite slopes along two edges", ("edge-singular",),
        None, (0.0, 1.0)),
    Entry("cone", _square(), "hypot(x, y)", "elementary: the distance to the origin", ("kinked",), (1.0, 1.0),
        (0.0, math.sqrt(2))),
    Entry("larger", _square(), "max(x, y)", "elementary", ("kinked",), (1.0, 1.0), (-1.0, 1.0)),
    Entry("folded_paper", _square(), "abs(x + 0.7*y - 0.1) + 0.5*abs(x - y)", "elementary: two crossing kinks", ("kinked",),
        (1.5, 1.2)),
    Entry("disc_and_half_plane", _square(-2.0, 2.0), "where(x**2 + y**2 < 1, 1, 0) - 0.7*where(x + 0.3*y > 0.4, 1, 0)",
        "the discontinuous target of the L_p tables", ("discontinuous",), None, (-0.7, 1.0)),
    Entry("disc", _square(), "where(x**2 + y**2 < 0.49, 1, 0)", "elementary: the indicator of a disc", ("discontinuous",), None,
        (0.0, 1.0)),
    Entry("checkerboard", _square(), "sign(sin(3*x)*sin(3*y))", "elementary", ("discontinuous",), None, (-1.0, 1.0)),
    Entry("polar_angle", _square(), "atan2(y, x)", "elementary: a jump along a ray", ("discontinuous",), None, (-pi, pi)),
    Entry("genz_discontinuous", _square(0.0, 1.0), "where(x > 0.6 or y > 0.7, 0, exp(2*x + 3*y))", _GENZ, ("discontinuous",),
        None, (0.0, math.exp(3.3))),
)  # fmt: skip

_SPACE = (
    Entry("ishigami", Box.named(["x1", "x2", "x3"], -pi, pi), "sin(x1) + 7*sin(x2)**2 + 0.1*x3**4*sin(x1)",
        "Ishigami, Homma 1990", ("smooth", "oscillating"), (1 + 0.1 * pi**4, 7.0, 0.4 * pi**3),
        (-1 - 0.1 * pi**4, 8 + 0.1 * pi**4)),
    Entry("genz_oscillatory", _cube(3), "cos(0.6*pi + 3*x1 + 2*x2 + x3)", _GENZ, ("smooth", "oscillating"), (3.0, 2.0, 1.0),
        (-1.0, 1.0)),
    Entry("genz_product_peak", _cube(3), "1/((0.2 + (x1 - 0.3)**2)*(0.2 + (x2 - 0.5)**2)*(0.2 + (x3 - 0.7)**2))", _GENZ,
        ("smooth",), None, (1 / 0.69 / 0.45 / 0.69, 125.0)),
    Entry("genz_corner_peak", _cube(3), "(1 + 2*x1 + x2 + 0.5*x3)**-4", _GENZ, ("smooth",), (8.0, 4.0, 2.0), (4.5**-4, 1.0)),
    Entry("genz_gaussian", _cube(3), "exp(-4*(x1 - 0.3)**2 - 2*(x2 - 0.5)**2 - (x3 - 0.6)**2)", _GENZ, ("smooth",)),
    Entry("genz_continuous", _cube(3), "exp(-3*abs(x1 - 0.3) - 2*abs(x2 - 0.5) - abs(x3 - 0.6))", _GENZ, ("kinked",),
        (3.0, 2.0, 1.0), (math.exp(-2.1 - 1 - 0.6), 1.0)),
    Entry("hartmann_3", _cube(3),
        "-exp(-3*(x1 - 0.3689)**2 - 10*(x2 - 0.1170)**2 - 30*(x3 - 0.2673)**2)"
        " - 1.2*exp(-0.1*(x1 - 0.4699)**2 - 10*(x2 - 0.4387)**2 - 35*(x3 - 0.7470)**2)"
        " - 3*exp(-3*(x1 - 0.1091)**2 - 10*(x2 - 0.8732)**2 - 30*(x3 - 0.5547)**2)"
        " - 3.2*exp(-0.1*(x1 - 0.03815)**2 - 10*(x2 - 0.5743)**2 - 35*(x3 - 0.8828)**2)",
        "Hartmann 1973", ("smooth",), None, None, ((0.114614, 0.555649, 0.852547), -3.86278)),
    Entry("distance_3", Box.named(["x1", "x2", "x3"], -1, 1), "sqrt(x1**2 + x2**2 + x3**2)", "elementary: a cone point",
        ("kinked",), (1.0, 1.0, 1.0), (0.0, math.sqrt(3))),
    Entry("otl_circuit", Box(Rb1=(50, 150), Rb2=(25, 70), Rf=(0.5, 3), Rc1=(1.2, 2.5), Rc2=(0.25, 1.2), beta=(50, 300)),
        "11.35 + (12/(1 + Rb1/Rb2) - 10.61 + 0.74*Rf/Rc1)/(1 + Rf/(beta*(Rc2 + 9)))",
        "Ben-Ari, Steinberg 2007: a push-pull circuit", ("smooth",)),
    Entry("piston",
        Box(M=(30, 60), S=(0.005, 0.02), V0=(0.002, 0.01), k=(1000, 5000), P0=(90000, 110000), Ta=(290, 296), T0=(340, 360)),
        "2*pi*sqrt(M/(k*(1 + exp(2*asinh((P0*S + 19.62*M - k*V0/S)/sqrt(4*k*P0*V0*Ta/T0))))))",
        "Kenett, Zacks 1998: the cycle time of a piston", ("smooth",)),
    Entry("borehole",
        Box(rw=(0.05, 0.15), r=(100, 50000), Tu=(63070, 115600), Hu=(990, 1110), Tl=(63.1, 116), Hl=(700, 820),
            L=(1120, 1680), Kw=(9855, 12045)),
        "2*pi*Tu*(Hu - Hl)/(log(r/rw)*(1 + 2*L*Tu/(log(r/rw)*rw**2*Kw) + Tu/Tl))",
        "Harper, Gupta 1983: water flow through a borehole", ("smooth",)),
    Entry("robot_arm",
        Box(t1=(0, 2 * pi), t2=(0, 2 * pi), t3=(0, 2 * pi), t4=(0, 2 * pi), L1=(0, 1), L2=(0, 1), L3=(0, 1), L4=(0, 1)),
        "hypot(L1*cos(t1) + L2*cos(t1 + t2) + L3*cos(t1 + t2 + t3) + L4*cos(t1 + t2 + t3 + t4),"
        " L1*sin(t1) + L2*sin(t1 + t2) + L3*sin(t1 + t2 + t3) + L4*sin(t1 + t2 + t3 + t4))",
        "An, Owen 2001: how far the hand of an arm is from its shoulder", ("kinked",), None, (0.0, 4.0)),
    Entry("genz_gaussian_8", _cube(8), "exp(-(" + " + ".join(f"(x{i} - 0.5)**2" for i in range(1, 9)) + "))", _GENZ,
        ("smooth",), None, (math.exp(-2), 1.0)),
    Entry("sines_8", _cube(8, -1.0, 1.0), " + ".join(f"sin({i}*x{i})/{i}" for i in range(1, 9)),
        "elementary: a sum, one wave per axis", ("smooth", "oscillating"), (1.0,) * 8, None),
)  # fmt: skip


def _sum(dimension: int, term: str) -> str:
    return " + ".join(term.format(i=i) for i in range(1, dimension + 1))


_SOBOL = (0.0, 1.0, 4.5, 9.0, 99.0, 99.0, 99.0, 99.0)
_SOBOL_MOST = math.prod((2 + a) / (1 + a) for a in _SOBOL)
_MOVES = ("(log(S/K) + (r + sigma**2/2)*T)/(sigma*sqrt(2*T))", "(log(S/K) + (r - sigma**2/2)*T)/(sigma*sqrt(2*T))")

_MANY = (
    Entry("van_der_waals", Box(n=(0.5, 2), T=(280, 400), V=(0.01, 0.05)), "n*8.314462618*T/(V - n*3.87e-5) - 0.1370*n**2/V**2",
        "van der Waals 1873: the pressure of nitrogen, SI units", ("smooth",)),
    Entry("black_scholes_call", Box(S=(80, 120), K=(80, 120), r=(0, 0.1), sigma=(0.1, 0.5), T=(0.25, 2)),
        f"S*(1 + erf({_MOVES[0]}))/2 - K*exp(-r*T)*(1 + erf({_MOVES[1]}))/2",
        "Black, Scholes 1973: the price of a call in all five inputs", ("smooth",)),
    Entry("elliptic_bell_6", _cube(6, -1.0, 1.0),
        "exp(-(" + " + ".join([*(f"x{i}**2/3" for i in range(1, 7)),
            *(f"2*x{i}*x{j}/{3 + 3 * j - 3 * i}" for i in range(1, 7) for j in range(i + 1, 7))]) + "))",
        "elementary: exp(-x'Ax), A_ij = 1/(3 + 3|i - j|)", ("smooth",), None, (math.exp(-163 / 30), 1.0)),
    Entry("sobol_g_8", _cube(8), "*".join(f"(abs(4*x{i} - 2) + {a:g})/{1 + a:g}" for i, a in enumerate(_SOBOL, 1)),
        "Saltelli, Sobol 1995: a = 0, 1, 4.5, 9, 99, 99, 99, 99", ("kinked",), tuple(4 * _SOBOL_MOST / (2 + a) for a in _SOBOL),
        (0.0, _SOBOL_MOST)),
    Entry("softmax_entry_8", _cube(8, -1.0, 1.0), f"exp(x1)/({_sum(8, 'exp(x{i})')})", "elementary: one weight of eight",
        ("smooth",), None, (1 / (1 + 7 * math.exp(2)), 1 / (1 + 7 * math.exp(-2)))),
    Entry("wing_weight",
        Box(Sw=(150, 200), Wfw=(220, 300), A=(6, 10), Lambda=(-10, 10), q=(16, 45), taper=(0.5, 1), tc=(0.08, 0.18), Nz=(2.5, 6),
            Wdg=(1700, 2500), Wp=(0.025, 0.08)),
        "0.036*Sw**0.758*Wfw**0.0035*(A/cos(pi*Lambda/180)**2)**0.6*q**0.006*taper**0.04"
        "*(100*tc/cos(pi*Lambda/180))**-0.3*(Nz*Wdg)**0.49 + Sw*Wp",
        "Forrester, Sobester, Keane 2008: the weight of a light aircraft's wing", ("smooth",)),
    Entry("radial_peak_10", _cube(10, -1.0, 1.0), f"1/(1 + {_sum(10, 'x{i}**2')})", "elementary", ("smooth",), None,
        (1 / 11, 1.0)),
    Entry("radial_waves_10", _cube(10, -1.0, 1.0), f"exp(sin({_sum(10, 'x{i}**2')}))", "elementary: waves around the origin",
        ("smooth", "oscillating"), None, (math.exp(-1), math.e)),
    Entry("log_sum_exp_10", _cube(10, -1.0, 1.0), f"log(1 + {_sum(10, 'exp(x{i})')})", "elementary: a soft maximum",
        ("smooth",), None, (math.log(1 + 10 / math.e), math.log(1 + 10 * math.e))),
    Entry("radial_root_20", _cube(20, -1.0, 1.0), f"sqrt(1 + {_sum(20, 'x{i}**2')})", "elementary: a hyperboloid", ("smooth",),
        None, (1.0, math.sqrt(21))),
    Entry("griewank_20", _cube(20, -5.0, 5.0),
        f"1 + ({_sum(20, 'x{i}**2')})/4000 - " + "*".join(f"cos(x{i}/sqrt({i}))" for i in range(1, 21)), "Griewank 1981",
        ("smooth", "oscillating"), None, None, ((0.0,) * 20, 0.0)),
    Entry("rosenbrock_20", _cube(20, -2.0, 2.0),
        " + ".join(f"100*(x{i + 1} - x{i}**2)**2 + (1 - x{i})**2" for i in range(1, 20)), "Rosenbrock 1960, in a chain",
        ("smooth",), (4806.0, *(6006.0,) * 18, 1200.0), (0.0, 19 * 3609.0), ((1.0,) * 20, 0.0)),
    Entry("radial_peak_50", _cube(50, -1.0, 1.0), f"1/(1 + {_sum(50, 'x{i}**2')})", "elementary", ("smooth",), None,
        (1 / 51, 1.0)),
)  # fmt: skip

_SEQUENCES = (
    Entry("mixed_2x2", Box.sequence(d=2, n=2, low=-1, high=1),
        "sin(2*x11) + x12*x21, cos(x11 - x22), tanh(x21 + 2*x22), x11*x12/2 + x21**2",
        "a sequence map that no permutation of tokens commutes with", ("smooth", "sequence"), None, None, None, (2, 2)),
    Entry("sort_2", Box.sequence(d=1, n=2, low=-1, high=1), "min(x1, x2), max(x1, x2)", "elementary: sorting two tokens",
        ("kinked", "sequence"), (1.0, 1.0), None, None, (1, 2)),
    Entry("prefix_maximum_3", Box.sequence(d=1, n=3, low=-1, high=1), "x1, max(x1, x2), max(x1, x2, x3)",
        "elementary: the largest token so far", ("kinked", "sequence"), (1.0, 1.0, 1.0), None, None, (1, 3)),
    Entry("reverse_3", Box.sequence(d=1, n=3, low=-1, high=1), "x3, x2, x1", "elementary: tokens in reverse",
        ("smooth", "sequence"), (1.0, 1.0, 1.0), None, None, (1, 3)),
    Entry("softmax_3", Box.sequence(d=1, n=3, low=-1, high=1),
        "1/(1 + exp(x2 - x1) + exp(x3 - x1)), 1/(1 + exp(x1 - x2) + exp(x3 - x2)),"
        " 1/(1 + exp(x1 - x3) + exp(x2 - x3))",
        "elementary: the softmax of three tokens", ("smooth", "sequence"), (0.25, 0.25, 0.25), None, None, (1, 3)),
    Entry("attention_2", Box.sequence(d=1, n=2, low=-1, high=1),
        "x1 + (x2 - x1)*sigmoid(x1*(x2 - x1)), x1 + (x2 - x1)*sigmoid(x2*(x2 - x1))",
        "Vaswani et al. 2017: one attention head on two scalar tokens", ("smooth", "sequence"), None, None, None, (1, 2)),
    Entry("threshold_gate_2", Box.sequence(d=1, n=2, low=-1, high=1), "where(x1 > 0, x2, 0), where(x2 > 0, x1, 0)",
        "elementary: one token gates the other", ("discontinuous", "sequence"), None, None, None, (1, 2)),
    Entry("query_context", (Box.named(["q1", "q2"], -1, 1), Box.named(["k1", "k2"], -1, 1)),
        "sin(q1 + k1) + q2*k2, cos(q1 - k2) + q2/2", _PAPER + ": two inputs, cross-attention", ("smooth", "pair"), None, None,
        None, (1, 2)),
    Entry("alignment", (Box.named(["q1", "q2"], -1, 1), Box.named(["k1", "k2"], -1, 1)), "tanh(q1*k1 + q2*k2)",
        "elementary: a saturated inner product of two inputs", ("smooth", "pair"), (1.0, 1.0, 1.0, 1.0),
        (-math.tanh(2), math.tanh(2))),
)  # fmt: skip

_MAPS = tuple(Entry(name, box, text, source, tags) for name, box, text, source, tags, _ in MAPS)

ENTRIES = _LINE + _PLANE + _SPACE + _MANY + _SEQUENCES + _MAPS
"""Every entry, by number of variables."""
