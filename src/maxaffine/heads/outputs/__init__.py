"""Every output by a head of its own, side by side in one layer."""

from maxaffine.heads.outputs.search import Outputs

HEAD = Outputs()
