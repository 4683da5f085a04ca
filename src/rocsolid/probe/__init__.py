"""Takes the snapshot of machine, container, packages and effective settings; keeps the ledger of images."""
