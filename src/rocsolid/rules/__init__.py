"""One hazard per file: its documentation page, its declaration and its check."""
