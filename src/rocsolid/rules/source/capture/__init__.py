"""Hazards in the capture and replay of CUDA and HIP graphs."""
