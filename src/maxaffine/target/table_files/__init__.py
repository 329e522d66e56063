"""Tables and samples out of files: npz, npy, CSV and NetCDF."""

from maxaffine.target.table_files.contents import Contents
from maxaffine.target.table_files.read import read_contents

__all__ = ["Contents", "read_contents"]
