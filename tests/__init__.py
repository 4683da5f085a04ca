"""Makes this folder the package `tests`, also where a library has installed one of that name."""
