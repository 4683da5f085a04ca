"""Names of torch's that stand for several things."""

from typing import Final

SKIPPED: Final = (
    "Attempted to call function marked as skipped",
    "Attempted to inline function marked as skipped",
    "Attempted to inline function marked as skipped (SkipFunctionVariable)",
    "Unsupported function call",
    "Unsupported method call",
    "can't handle functions not implemented in python ",
)
