"""Private names of TorchInductor: lowering and compiler start-up."""
