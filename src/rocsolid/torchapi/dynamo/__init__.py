"""Private names of TorchDynamo: compile hooks and events, compiled functions, saved traces."""
