"""Find the best settings for a workload: try variants in child processes, race the best ones, and make a plan of the winner."""
