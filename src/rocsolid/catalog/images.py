"""Container images that public guides describe. None of them was probed for this list, so each entry is a claim."""

from rocsolid.model.evidence import claim
from rocsolid.model.saved_probe import ImageEntry

_GUIDE = "guide S4, version history"

IMAGES = (
    ImageEntry(
        image="rocm/sgl-dev:v0.5.8-rocm700-mi30x-20260129",
        source="claim",
        note="max_autotune is on; a solver bug of hipBLASLt is present",
        evidence=(claim(_GUIDE, "Kernel search on by default, and a solver bug in hipBLASLt."),),
    ),
    ImageEntry(
        image="rocm/sgl-dev:v0.5.8-rocm700-mi35x-20260210",
        source="claim",
        note="max_autotune is on; a solver bug of hipBLASLt is present; FP8 flash attention is broken",
        evidence=(claim(_GUIDE, "Kernel search on by default, a solver bug in hipBLASLt, FP8 attention broken."),),
    ),
    ImageEntry(
        image="rocm/sgl-dev:v0.5.8.post1-rocm700-mi35x-20260219",
        source="claim",
        note="not tested; may have fixes",
        evidence=(claim(_GUIDE, "Left open."),),
    ),
)
