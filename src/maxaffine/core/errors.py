"""The two ways a request can fail, both of them sentences.

A message names the argument, its value, the rule and the way out:
"`error` (=0) must be positive; ask for an absolute sup-norm error such as 1e-3."
"""


class MaxaffineError(ValueError):
    """Base of every error that maxaffine raises on purpose."""


class BadInput(MaxaffineError):
    """An argument, a file or an expression that is malformed."""


class Refused(MaxaffineError):
    """A well-formed request that cannot be proved, afforded or represented."""
