"""Load a workload and time it: GPU events, interleaved rounds, confidence intervals, verdicts."""
