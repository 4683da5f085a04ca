"""Results and declarations as frozen dataclasses; no torch, no I/O."""
