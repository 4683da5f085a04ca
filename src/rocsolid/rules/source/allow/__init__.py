"""What goes wrong with the comments that allow a hazard, and with files that cannot be read."""
