"""The lab: every experiment that the papers ask for, resumable, with a verdict and a record."""

from maxaffine.lab.experiment import Context, Experiment, Result, Table, Verdict

__all__ = ["Context", "Experiment", "Result", "Table", "Verdict"]
