"""Vendor kernels as registered operators, each with a fake and a reference."""
