"""Environment variables of MIOpen and OpenMP."""

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
        summary=(
            "How MIOpen chooses a convolution kernel: NORMAL times all of them, FAST looks in its database, "
            "DYNAMIC_HYBRID combines both."
        ),
        candidates=("FAST", "DYNAMIC_HYBRID"),
        valid=_ROCM,
        notes="A search during a graph capture makes the capture fail, so run every shape before capturing.",
        evidence=(issue("pytorch/pytorch#188338", "Reports that MIOpen searches during a capture."),),
    ),
    Setting(
        owner=Owner.PROCESS,
        name="MIOPEN_FIND_ENFORCE",
        value_type=str,
        summary=(
            "Whether MIOpen must search for the fastest convolution kernel again. 1: not forced; 2 and "
            "3: update the database; 4: always search; 5: clean the database."
        ),
        hazards=tuple(
            Hazard(
                value=value,
                severity=Severity.WARNING,
                check="variables",
                why=(
                    "MIOpen searches again for every convolution at every start. The search takes "
                    "minutes and makes a graph capture fail."
                ),
                evidence=(
                    source(_MIOPEN, ("With values from 3 on, MIOpen searches even if its database has a result.")),
                ),
                when=_ROCM,
            )
            for value in ("3", "4", "SEARCH", "SEARCH_DB_UPDATE")
        ),
        recommendations=(
            Recommendation(
                profile="safe",
                value=None,
                why="If it is not set, MIOpen searches only for shapes that are not in its database.",
                evidence=(source(_MIOPEN, "By default MIOpen searches once per shape."),),
                when=_ROCM,
            ),
        ),
    ),
    Setting(
        owner=Owner.PROCESS,
        name="MIOPEN_DEBUG_CONV_GEMM",
        value_type=str,
        summary="0 stops MIOpen from running convolutions through rocBLAS.",
        candidates=("0", "1"),
        valid=_ROCM,
        notes=("A public report describes wrong results of such convolutions in bf16 when a graph is replayed."),
        evidence=(
            issue(
                "ROCm/rocBLAS#1649",
                ("Reports that a convolution through rocBLAS returns wrong results when a graph is replayed."),
            ),
        ),
    ),
    Setting(
        owner=Owner.PROCESS,
        name="MIOPEN_USER_DB_PATH",
        value_type=str,
        names_file=True,
        summary="The folder in which MIOpen stores its search results.",
        valid=_ROCM,
        notes="In a container this folder is often lost at the next start; MIOpen then repeats every search.",
        evidence=(source(_MIOPEN, "The default is a folder in the user's home."),),
    ),
    Setting(
        owner=Owner.PROCESS,
        name="OMP_NUM_THREADS",
        value_type=str,
        summary="How many threads a parallel loop on the CPU uses.",
        candidates=("1", "2", "4", "8", "16", "32", "64"),
        notes="torchrun sets it to 1 if it is not set, which makes CPU code single-threaded.",
        evidence=(
            source(
                "torch 2.13 distributed/run.py OMP_NUM_THREADS",
                ("torchrun sets it to 1 if there is more than one process per node."),
            ),
        ),
    ),
)
