"""A model in, AMD machine code and its resource use out, with no AMD GPU."""
