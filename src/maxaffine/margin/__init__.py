"""Where training takes a head: max-margin token selection, with its solver, its laws, and certificates of a finite run.

    from maxaffine import margin
    tokens = margin.Tokens.of(X, Y, v)                    # X (n, T, d), labels +-1, a value vector
    svm = margin.att_svm(tokens.keys, tokens.best)        # p_mm, the query of the largest margin
    run = margin.gradient_flow(tokens, end=1e12)          # |p| = |p_mm| log T
    margin.certificate(run.p[-1], svm).least_cosine       # proved by the margin alone

docs/margin.md says what is proved, what is a law of first order, and what was recalled from the papers.
"""

from maxaffine.margin.asymptote import Asymptote, asymptote
from maxaffine.margin.basins import Basins, basins, grid_of_starts
from maxaffine.margin.certificate import Certificate, certificate
from maxaffine.margin.descent import gd, ngd
from maxaffine.margin.distance import NotSeparable
from maxaffine.margin.examples import EXAMPLES, Joint
from maxaffine.margin.flow import gradient_flow, slope
from maxaffine.margin.joint import joint_flow, joint_ngd, joint_path, joint_svm, limit_direction
from maxaffine.margin.local import Locality, Optimality, is_locally_optimal
from maxaffine.margin.matrix import factor_ngd, lift, nuclear_svm
from maxaffine.margin.path import RegularisationPath, regularisation_path
from maxaffine.margin.problem import Tokens
from maxaffine.margin.report import Report, examine
from maxaffine.margin.svm import AttSvm, att_svm, hard_margin
from maxaffine.margin.trajectory import Trajectory
from maxaffine.margin.walls import Walls, walls

__all__ = [
    "EXAMPLES", "Asymptote", "AttSvm", "Basins", "Certificate", "Joint", "Locality", "NotSeparable", "Optimality",
    "RegularisationPath", "Report", "Tokens", "Trajectory", "Walls", "asymptote", "att_svm", "basins", "certificate",
    "examine", "factor_ngd", "gd", "gradient_flow", "grid_of_starts", "hard_margin", "is_locally_optimal", "joint_flow",
    "joint_ngd", "joint_path", "joint_svm", "lift", "limit_direction", "ngd", "nuclear_svm", "regularisation_path", "slope",
    "walls",
]  # fmt: skip
