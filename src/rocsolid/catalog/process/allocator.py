"""Variables of the device memory allocator."""

from rocsolid.model.evidence import issue, source
from rocsolid.model.finding import Severity
from rocsolid.model.platform import Platform
from rocsolid.model.setting import Hazard, Owner, Recommendation, Setting, on

_ROCM = on(Platform.ROCM)

SETTINGS = (
    Setting(
        owner=Owner.PROCESS,
        name="PYTORCH_ALLOC_CONF",
        value_type=str,
        summary="Options of the caching allocator, such as expandable_segments:True or max_split_size_mb:256.",
        former_names=("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF"),
        hazards=(
            Hazard(
                value="expandable_segments:True",
                contains=True,
                severity=Severity.CRITICAL,
                why="Expandable segments hang or grow without bound on this build.",
                evidence=(
                    issue("pytorch/pytorch#192259", "Hang with torch 2.14 development builds on ROCm 7.2."),
                    issue("pytorch/pytorch#123548", "Memory grows together with max_split_size_mb."),
                ),
                when=on(Platform.ROCM, torch="2.11.."),
            ),
            Hazard(
                value="expandable_segments:True",
                contains=True,
                severity=Severity.INFO,
                why="ROCm builds of this release do not have expandable segments: the option does nothing.",
                evidence=(issue("pytorch/pytorch#177974", "Support on ROCm was landed in 2026."),),
                when=on(Platform.ROCM, torch="..2.10"),
            ),
        ),
        recommendations=(
            Recommendation(
                profile="safe",
                value=None,
                why="The allocator's defaults are the ones that captures were tested with.",
                evidence=(issue("pytorch/pytorch#192259", "Hang with expandable segments on ROCm."),),
                when=_ROCM,
            ),
        ),
        notes="Guide S0 recommends expandable segments for ROCm. Up to torch 2.10 they do nothing there, after that a hang is on "
        "record. The name without a vendor is read since torch 2.10; before, the older spellings are.",
        evidence=(
            source(
                "torch 2.11 libtorch_cuda.so string table",
                "PYTORCH_ALLOC_CONF and PYTORCH_CUDA_ALLOC_CONF are both read.",
            ),
        ),
    ),
    Setting(
        owner=Owner.PROCESS,
        name="PYTORCH_NO_CUDA_MEMORY_CACHING",
        value_type=str,
        summary="1 takes every tensor straight from the driver.",
        former_names=("PYTORCH_NO_HIP_MEMORY_CACHING",),
        hazards=(
            Hazard(
                value="1",
                severity=Severity.WARNING,
                why="Every tensor is a driver call: slow, and a device graph cannot be captured at all.",
                evidence=(
                    source(
                        "torch 2.13 _inductor/cudagraph_trees.py", "Capture relies on the caching allocator's pools."
                    ),
                ),
            ),
        ),
    ),
)
