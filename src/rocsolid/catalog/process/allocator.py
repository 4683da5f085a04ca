"""Environment variables of torch's GPU memory allocator."""

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
        summary="Options of torch's caching allocator, such as expandable_segments:True or max_split_size_mb:256.",
        former_names=("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF"),
        hazards=(
            Hazard(
                value="expandable_segments:True",
                contains=True,
                severity=Severity.CRITICAL,
                why="expandable_segments:True can hang on ROCm, or make memory grow without bound.",
                evidence=(
                    issue("pytorch/pytorch#192259", ("Reports a hang with torch 2.14 development builds on ROCm 7.2.")),
                    issue("pytorch/pytorch#123548", "Together with max_split_size_mb, memory grows without bound."),
                ),
                when=on(Platform.ROCM, torch="2.11.."),
            ),
            Hazard(
                value="expandable_segments:True",
                contains=True,
                severity=Severity.INFO,
                why="expandable_segments:True has no effect: ROCm builds of torch up to 2.10 do not support it.",
                evidence=(issue("pytorch/pytorch#177974", "Support for ROCm was added in 2026."),),
                when=on(Platform.ROCM, torch="..2.10"),
            ),
        ),
        recommendations=(
            Recommendation(
                profile="safe",
                value=None,
                why=(
                    "expandable_segments:True can hang on ROCm. If the variable is not set, the allocator uses its "
                    "default options; captures were tested with these."
                ),
                evidence=(issue("pytorch/pytorch#192259", "Reports a hang with expandable segments on ROCm."),),
                when=_ROCM,
            ),
        ),
        notes=(
            "A public ROCm guide (overview guide) recommends expandable segments. Up to torch 2.10 they have "
            "no effect on ROCm; for later versions a hang was reported. The name PYTORCH_ALLOC_CONF is read "
            "since torch 2.10; earlier releases read only the older spellings."
        ),
        evidence=(
            source(
                "torch 2.11 libtorch_cuda.so string table",
                "Both PYTORCH_ALLOC_CONF and PYTORCH_CUDA_ALLOC_CONF are read.",
            ),
        ),
    ),
    Setting(
        owner=Owner.PROCESS,
        name="PYTORCH_NO_CUDA_MEMORY_CACHING",
        value_type=str,
        summary=("1 disables the caching allocator: the memory of every tensor comes directly from the driver."),
        former_names=("PYTORCH_NO_HIP_MEMORY_CACHING",),
        hazards=(
            Hazard(
                value="1",
                severity=Severity.WARNING,
                why="Every allocation is a slow driver call, and graphs cannot be captured at all.",
                evidence=(
                    source(
                        "torch 2.13 _inductor/cudagraph_trees.py",
                        "Graph capture needs the memory pools of the caching allocator.",
                    ),
                ),
            ),
        ),
    ),
)
