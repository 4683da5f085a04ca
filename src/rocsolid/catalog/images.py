"""Container images that a public guide describes. They were not probed for this list, so each entry is a claim."""

from rocsolid.model.evidence import claim
from rocsolid.model.saved_probe import ImageEntry

_GUIDE = "Docker defaults guide, version history"

IMAGES = (
    ImageEntry(
        image="rocm/sgl-dev:v0.5.8-rocm700-mi30x-20260129",
        source="claim",
        note="max_autotune is on; a solver bug of hipBLASLt is present",
        evidence=(claim(_GUIDE, "max_autotune is on by default, and hipBLASLt has a solver bug."),),
    ),
    ImageEntry(
        image="rocm/sgl-dev:v0.5.8-rocm700-mi35x-20260210",
        source="claim",
        note="max_autotune is on; a solver bug of hipBLASLt is present; FP8 flash attention is broken",
        evidence=(
            claim(_GUIDE, "max_autotune is on by default, hipBLASLt has a solver bug, and FP8 attention is broken."),
        ),
    ),
    ImageEntry(
        image="rocm/sgl-dev:v0.5.8.post1-rocm700-mi35x-20260219",
        source="claim",
        note="not tested; may have fixes",
        evidence=(claim(_GUIDE, "The guide leaves open whether this image has fixes."),),
    ),
)
