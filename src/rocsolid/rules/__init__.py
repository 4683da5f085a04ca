"""One hazard per file: its page, its declaration, its check."""
