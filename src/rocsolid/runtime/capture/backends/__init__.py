"""Where calls are captured: GPU graphs (`device`), recorded operators on the CPU (`record`), or a simulated HIP/CUDA runtime."""
