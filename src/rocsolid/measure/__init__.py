"""Load a workload and time it, with GPU events, interleaved rounds and confidence intervals."""
