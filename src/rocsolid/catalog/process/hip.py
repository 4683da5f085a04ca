"""Environment variables of the HIP and HSA runtimes. The names were checked against the string tables of the libraries."""

from rocsolid.model.evidence import Evidence, claim, issue, source
from rocsolid.model.finding import Severity
from rocsolid.model.platform import Platform
from rocsolid.model.setting import Condition, Hazard, Owner, Recommendation, Setting, on

_ROCM = on(Platform.ROCM)
_HIP = "HIP runtime 6.4.3 and 7.2.4, libamdhip64 string table"
_HSA = "ROCr runtime 7.2.4, libhsa-runtime64 string table"


def _contains(library: str, name: str) -> Evidence:
    return source(library, f"The library's string table contains {name}.")


def _blocking(
    name: str,
    summary: str,
    operation: str,
    debug_value: str,
    platform: Condition,
    evidence: Evidence,
    elsewhere: str = "",
) -> Setting:
    """A variable for debugging that makes every operation wait for the GPU, which slows the program down."""
    values = ("1", "2", "3")
    return Setting(
        owner=Owner.PROCESS,
        name=name,
        value_type=str,
        summary=summary,
        valid=platform,
        elsewhere=elsewhere,
        recommendations=(
            Recommendation(
                profile="debug",
                value=debug_value,
                why="An error is raised at the call that caused it.",
                evidence=(evidence,),
                when=platform,
            ),
            Recommendation(
                profile="safe",
                value=None,
                why=f"The variable is only for debugging: it makes every {operation} wait for the GPU.",
                evidence=(evidence,),
                when=platform,
            ),
        ),
        hazards=tuple(
            Hazard(
                value=value,
                severity=Severity.WARNING,
                check="variables",
                why=f"Every {operation} waits for the GPU. During a graph capture, waiting makes the capture fail.",
                evidence=(evidence,),
            )
            for value in values
        ),
    )


SETTINGS = (
    _blocking(
        "HIP_LAUNCH_BLOCKING",
        "1 makes every kernel launch wait until the kernel has finished.",
        "kernel launch",
        "1",
        _ROCM,
        _contains(_HIP, "HIP_LAUNCH_BLOCKING"),
    ),
    _blocking(
        "AMD_SERIALIZE_KERNEL",
        "1 waits for the GPU before every kernel, 2 after it, 3 before and after it.",
        "kernel launch",
        "3",
        _ROCM,
        _contains(_HIP, "AMD_SERIALIZE_KERNEL"),
    ),
    _blocking(
        "AMD_SERIALIZE_COPY",
        "1 waits for the GPU before every copy, 2 after it, 3 before and after it.",
        "copy",
        "3",
        _ROCM,
        _contains(_HIP, "AMD_SERIALIZE_COPY"),
    ),
    _blocking(
        "CUDA_LAUNCH_BLOCKING",
        "1 makes every kernel launch wait until the kernel has finished.",
        "kernel launch",
        "1",
        on(Platform.CUDA),
        source("CUDA programming guide, asynchronous execution", "1 disables asynchronous launches."),
        "On ROCm set HIP_LAUNCH_BLOCKING=1 or AMD_SERIALIZE_KERNEL=3 instead; the HIP runtime does not read CUDA_LAUNCH_BLOCKING.",
    ),
    Setting(
        owner=Owner.PROCESS,
        name="AMD_LOG_LEVEL",
        value_type=str,
        summary="How much the HIP runtime prints: 0 prints nothing, 4 prints every call.",
        recommendations=(
            Recommendation(
                profile="safe",
                value=None,
                why="If it is not set, the runtime prints nothing.",
                evidence=(_contains(_HIP, "AMD_LOG_LEVEL"),),
                when=_ROCM,
            ),
        ),
        hazards=tuple(
            Hazard(
                value=level,
                severity=Severity.WARNING,
                why="The runtime prints a line for every call, which can make a program many times slower.",
                evidence=(_contains(_HIP, "AMD_LOG_LEVEL"),),
            )
            for level in ("3", "4", "5")
        ),
        notes=("If a capture fails and no reason is shown, AMD advises to set 4 and search the output for hipError."),
    ),
    Setting(
        owner=Owner.PROCESS,
        name="HIP_FORCE_DEV_KERNARG",
        value_type=str,
        summary="1 puts kernel arguments into GPU memory.",
        candidates=("0", "1"),
        valid=_ROCM,
        notes=(
            "According to AMD's tuning pages, 1 saves 2 to 3 microseconds per launch. We have not "
            "measured it, so no profile sets it; the tuner tries it."
        ),
        evidence=(
            _contains(_HIP, "HIP_FORCE_DEV_KERNARG"),
            claim("AMD's workload tuning guide", "1 saves 2 to 3 µs per launch."),
        ),
    ),
    Setting(
        owner=Owner.PROCESS,
        name="GPU_MAX_HW_QUEUES",
        value_type=str,
        summary="How many hardware queues the streams of a process share.",
        candidates=("1", "2", "4", "8"),
        valid=_ROCM,
        notes="If there are more streams than queues, some streams wait for each other.",
        evidence=(
            issue("pytorch/torchtitan#4032", "Too few queues serialise streams that should overlap."),
            _contains(_HIP, "GPU_MAX_HW_QUEUES"),
        ),
    ),
    Setting(
        owner=Owner.PROCESS,
        name="HSA_NO_SCRATCH_RECLAIM",
        value_type=str,
        summary=(
            "1 keeps the scratch memory of kernels that spill registers, instead of freeing it after each kernel."
        ),
        candidates=("0", "1"),
        recommendations=(
            Recommendation(
                profile="balanced",
                value="1",
                why=(
                    "With 0, scratch memory is freed after each kernel, which makes collectives 5 to "
                    "10 times slower on gfx90a."
                ),
                evidence=(
                    issue("ROCm/rocm-systems#8657", ("Collectives are 5 to 10 times slower without it on gfx90a.")),
                ),
                when=on(Platform.ROCM, rocm="7.13..", archs=("gfx90a",)),
            ),
        ),
        valid=_ROCM,
        notes=(
            "Some RCCL releases require 1 and do not start otherwise. With 1, the memory stays "
            "allocated until the process ends."
        ),
        evidence=(
            issue("ROCm/rccl#1867", "RCCL requires the variable when it starts."),
            _contains(_HSA, "HSA_NO_SCRATCH_RECLAIM"),
        ),
    ),
    Setting(
        owner=Owner.PROCESS,
        name="HSA_ENABLE_SDMA",
        value_type=str,
        summary="0 copies memory with kernels instead of the copy engines.",
        candidates=("0", "1"),
        valid=_ROCM,
        evidence=(_contains(_HSA, "HSA_ENABLE_SDMA"),),
    ),
    Setting(
        owner=Owner.PROCESS,
        name="HSA_ENABLE_IPC_MODE_LEGACY",
        value_type=str,
        summary="1 shares GPU memory between processes with the older IPC method.",
        valid=_ROCM,
        notes="1 stops a memory leak on ROCm 7.2.0 to 7.2.4 with MI GPUs, but breaks IPC on RDNA GPUs.",
        evidence=(
            issue("ROCm/rocm-libraries#6266", "GPU memory that is shared between processes leaks."),
            _contains(_HSA, "HSA_ENABLE_IPC_MODE_LEGACY"),
        ),
    ),
    Setting(
        owner=Owner.PROCESS,
        name="HSA_OVERRIDE_GFX_VERSION",
        value_type=str,
        summary="Makes the runtime treat the GPU as another architecture.",
        hazards=(
            Hazard(
                value="",
                contains=True,
                severity=Severity.WARNING,
                why=(
                    "The GPU runs kernels that were built for another architecture. They can crash or "
                    "return wrong results."
                ),
                evidence=(issue("ROCm/legacy-rocm-build#5238", ("Reports memory faults with this variable set.")),),
                when=_ROCM,
            ),
        ),
    ),
    Setting(
        owner=Owner.PROCESS,
        name="HIP_MEM_POOL_USE_VM",
        value_type=str,
        summary="Whether HIP memory pools use virtual-memory mapping.",
        candidates=("0", "1"),
        valid=_ROCM,
        evidence=(
            issue("ROCm/clr#280", "Without virtual memory, addresses are not stable on ROCm 7.0."),
            _contains(_HIP, "HIP_MEM_POOL_USE_VM"),
        ),
    ),
    Setting(
        owner=Owner.PROCESS,
        name="DEBUG_CLR_GRAPH_PACKET_CAPTURE",
        value_type=str,
        summary="Selects how HIP graphs are recorded (ROCm 6 only).",
        valid=on(Platform.ROCM, rocm="..7.1"),
        notes="libamdhip64 6.4.3 reads it, 7.2.4 does not.",
        evidence=(source(_HIP, "6.4.3 contains the name, 7.2.4 does not."),),
    ),
    Setting(
        owner=Owner.PROCESS,
        name="DEBUG_HIP_GRAPH_SEGMENT_SCHEDULING",
        value_type=str,
        summary=("0 schedules HIP graphs node by node: very long graphs then do not crash, but they launch slowly."),
        valid=on(Platform.ROCM, rocm="7.2.."),
        notes=(
            "Measured with the original HIP runtime and a simulated GPU: with 0, launching a graph of "
            "40,000 nodes takes 484 ms of CPU time instead of 2 ms, and does not crash."
        ),
        evidence=(
            source(_HIP, "7.2.4 contains the name, 6.4.3 does not."),
            issue("ROCm/legacy-rocm-build#6602", "Instantiating a long graph overflows the stack."),
        ),
    ),
    Setting(
        owner=Owner.PROCESS,
        name="DEBUG_HIP_GRAPH_DOT_PRINT",
        value_type=str,
        summary="Writes every HIP graph to a DOT file when it is instantiated.",
        recommendations=(
            Recommendation(
                profile="debug",
                value="1",
                why=(
                    "With 1, every HIP graph is written to a file. There is no other way to look into "
                    "one without an extra tool."
                ),
                evidence=(_contains(_HIP, "DEBUG_HIP_GRAPH_DOT_PRINT"),),
                when=_ROCM,
            ),
        ),
        valid=_ROCM,
    ),
    Setting(
        owner=Owner.PROCESS,
        name="HIP_CACHE_ENABLED",
        value_type=str,
        summary="Described in a guide as a switch for a compile cache.",
        no_effect=(
            "No library reads it: the name occurs neither in libamdhip64 6.4.3 or 7.2.4 nor in torch or Triton."
        ),
        evidence=(source(_HIP, "Neither version contains the name."),),
    ),
    Setting(
        owner=Owner.PROCESS,
        name="HIP_VISIBLE_DEVICES",
        value_type=str,
        summary=("Which GPUs are visible to HIP programs, chosen from those that ROCR_VISIBLE_DEVICES makes visible."),
        valid=_ROCM,
        evidence=(_contains(_HIP, "HIP_VISIBLE_DEVICES"),),
    ),
    Setting(
        owner=Owner.PROCESS,
        name="ROCR_VISIBLE_DEVICES",
        value_type=str,
        summary="Which GPUs are visible to all programs that use the ROCr runtime, including HIP programs.",
        valid=_ROCM,
        evidence=(_contains(_HSA, "ROCR_VISIBLE_DEVICES"),),
    ),
    Setting(
        owner=Owner.PROCESS,
        name="CUDA_VISIBLE_DEVICES",
        value_type=str,
        summary="Which GPUs are visible to CUDA programs. HIP reads the variable as well.",
        evidence=(_contains(_HIP, "CUDA_VISIBLE_DEVICES"),),
    ),
)
