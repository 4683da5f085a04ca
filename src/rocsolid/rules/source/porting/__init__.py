"""Code that works on CUDA but not on ROCm."""
