"""Image data for the experiments: found in a folder, verified, read, or replaced by synthetic images that say so."""

from maxaffine.lab.data.source import DataSource, ImageSet, choose, describe, locate

__all__ = ["DataSource", "ImageSet", "choose", "describe", "locate"]
