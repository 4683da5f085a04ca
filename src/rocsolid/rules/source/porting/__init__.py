"""What was written for CUDA and is not so on ROCm."""
