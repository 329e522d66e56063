"""Kernels for GPUs, through the extra ``maxaffine[gpu]``: plans in NumPy, kernels in Triton."""
