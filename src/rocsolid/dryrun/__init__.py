"""Compiles the kernels of a model for AMD GPUs that are not present, and reports their resource use."""
