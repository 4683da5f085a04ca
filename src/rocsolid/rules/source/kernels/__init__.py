"""What goes wrong in Triton kernels, and where they are launched."""
