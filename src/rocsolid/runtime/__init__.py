"""Makes functions compile, capture and replay under a plan it is given."""
