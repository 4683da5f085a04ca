"""Vendor kernels as registered torch operators, each with a fake implementation and a reference."""
