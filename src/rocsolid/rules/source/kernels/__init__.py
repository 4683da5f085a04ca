"""Hazards in Triton kernels and in their launches."""
