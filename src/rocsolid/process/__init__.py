"""Child processes: run a command with a deadline, find and end a process tree, end a child together with its parent."""
