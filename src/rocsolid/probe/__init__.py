"""Take a snapshot of the machine, the container, the packages and the settings in effect; keep the ledger."""
