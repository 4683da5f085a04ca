"""Variables of MIOpen, the collectives and the thread pools."""

from rocsolid.model.evidence import issue, source
from rocsolid.model.finding import Severity
from rocsolid.model.platform import Platform
from rocsolid.model.setting import Hazard, Owner, Recommendation, Setting, on

_ROCM = on(Platform.ROCM)
_MIOPEN = "MIOpen docs, find and immediate mode"

SETTINGS = (
    Setting(
        owner=Owner.PROCESS,
        name="MIOPEN_FIND_MODE",
        value_type=str,
        summary="How MIOpen looks for a convolution kernel: NORMAL times all, FAST asks its database, DYNAMIC_HYBRID mixes.",
        candidates=("FAST", "DYNAMIC_HYBRID"),
        valid=_ROCM,
        notes="A search inside a graph capture breaks it: every shape must have run before.",
        evidence=(issue("pytorch/pytorch#188338", "MIOpen's search inside a capture."),),
    ),
    Setting(
        owner=Owner.PROCESS,
        name="MIOPEN_FIND_ENFORCE",
        value_type=str,
        summary="Forces MIOpen to search again: 1 none, 2 and 3 update its database, 4 searches always, 5 cleans.",
        hazards=tuple(
            Hazard(
                value=value,
                severity=Severity.WARNING,
                why="Every start searches every convolution again, which takes minutes and cannot be captured.",
                evidence=(source(_MIOPEN, "Values from 3 on search even when the database has an answer."),),
                when=_ROCM,
            )
            for value in ("3", "4", "SEARCH", "SEARCH_DB_UPDATE")
        ),
        recommendations=(
            Recommendation(
                profile="safe",
                value=None,
                why="MIOpen then searches only what its database does not know.",
                evidence=(source(_MIOPEN, "The default searches once per shape."),),
                when=_ROCM,
            ),
        ),
    ),
    Setting(
        owner=Owner.PROCESS,
        name="MIOPEN_DEBUG_CONV_GEMM",
        value_type=str,
        summary="0 keeps convolutions away from rocBLAS.",
        candidates=("0", "1"),
        valid=_ROCM,
        notes="A public report has wrong results of such convolutions under replay in bf16.",
        evidence=(issue("ROCm/rocBLAS#1649", "A convolution through rocBLAS is wrong under graph replay."),),
    ),
    Setting(
        owner=Owner.PROCESS,
        name="MIOPEN_USER_DB_PATH",
        value_type=str,
        summary="Where MIOpen keeps what its searches found.",
        valid=_ROCM,
        notes="In a container this folder is often gone at the next start, and every search is repeated.",
        evidence=(source(_MIOPEN, "Defaults to a folder in the user's home."),),
    ),
    Setting(
        owner=Owner.PROCESS,
        name="OMP_NUM_THREADS",
        value_type=str,
        summary="How many threads a parallel loop on the CPU uses.",
        notes="torchrun sets it to 1 when it is unset, which makes CPU code single-threaded.",
        evidence=(
            source("torch 2.13 distributed/run.py OMP_NUM_THREADS", "Set to 1 for more than one process per node."),
        ),
    ),
)
