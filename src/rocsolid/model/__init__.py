"""The words of the project as frozen data: no torch, no I/O."""
