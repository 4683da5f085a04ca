"""The public functions that join rooms: take a profile name, ask the probe, hand a plan down."""
