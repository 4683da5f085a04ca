"""`rocsolid prove`: check every claim about ROCm and CUDA on the machine at hand, and write a record that can be merged."""
