"""Run one trial in processes that may hang, crash and start children; none of them outlives the trial."""
