"""Run one trial in processes that may hang, crash and start children. All of them end with the trial."""
