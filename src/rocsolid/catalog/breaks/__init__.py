"""Why graphs break, in plain words, and how each is fixed.

Torch gives every graph break a short name and an id. Some names cover several things (a C function may be a clock or a vendor's
kernel), so that the order counts: what is special stands before what is general.
"""

from typing import Final

from rocsolid.catalog.breaks.gradients import GRADIENTS
from rocsolid.catalog.breaks.libraries import LIBRARIES
from rocsolid.catalog.breaks.shapes import SHAPES
from rocsolid.catalog.breaks.side_effects import ASIDES
from rocsolid.catalog.breaks.tensors import TENSORS
from rocsolid.catalog.breaks.values import VALUES
from rocsolid.catalog.breaks.vendors import VENDORS
from rocsolid.model.known_cause import KnownCause

BREAK_CAUSES: Final = (
    *VALUES,
    *ASIDES,
    *SHAPES,
    *TENSORS,
    *GRADIENTS,
    *LIBRARIES,
    *VENDORS,
)


def find_break_cause(kind: str, said: str, line: str) -> KnownCause | None:
    """The fix for a break that torch calls `kind`, given what else it said and the line of code."""
    text = f"{said}\n{line}"
    return next((fix for fix in BREAK_CAUSES if fix.matches(kind, text)), None)
