"""Makes torch report a GPU that this machine does not have."""
