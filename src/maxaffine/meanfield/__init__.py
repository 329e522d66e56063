"""Exact mean-field theory of a softmax attention layer on single-location regression.

    from maxaffine import meanfield as mf
    problem = mf.Problem(d=100, L=20, gamma=0.5)
    risk = mf.SoftmaxRisk(problem, beta=1)
    risk.risk(mf.Overlaps(0.3, 0.2)), risk.gradient(mf.Overlaps(0.3, 0.2))
    mf.gd(mf.tabulate(risk), mf.Overlaps(0.1, 0.0), step=0.01, steps=1000).risk[-1]

docs/meanfield.md derives every formula.
"""

from maxaffine.meanfield.baselines import (
    bayes_risk,
    best_lambda,
    best_linear_risk,
    best_pointwise_lambda,
    erf_risk_closed,
    hardmax_risk,
    null_risk,
    pointwise_risk,
    uniform_risk,
)
from maxaffine.meanfield.data import Data, sample
from maxaffine.meanfield.dynamics import Trajectory, flow, gd, step_overlaps, velocity
from maxaffine.meanfield.landscape import StationaryPoint, hessian_oracle, riemannian_hessian, stationary_points
from maxaffine.meanfield.limit import MeanField, PaperRisk
from maxaffine.meanfield.link_risk import LinkRisk
from maxaffine.meanfield.links import CustomLink
from maxaffine.meanfield.problem import Overlaps, Problem
from maxaffine.meanfield.risk import RiskTable, SoftmaxRisk, tabulate
from maxaffine.meanfield.training import Record, Settings, train

__all__ = [
    "CustomLink", "Data", "LinkRisk", "MeanField", "Overlaps", "PaperRisk", "Problem", "Record", "RiskTable", "Settings",
    "SoftmaxRisk", "StationaryPoint", "Trajectory", "bayes_risk", "best_lambda", "best_linear_risk", "best_pointwise_lambda",
    "erf_risk_closed", "flow", "gd", "hardmax_risk", "hessian_oracle", "null_risk", "pointwise_risk", "riemannian_hessian",
    "sample", "stationary_points", "step_overlaps", "tabulate", "train", "uniform_risk", "velocity",
]  # fmt: skip
