"""Child processes: run a command with a deadline, find and end a process tree, die with the parent."""
