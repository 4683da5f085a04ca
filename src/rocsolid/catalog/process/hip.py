"""Variables of the HIP and HSA runtimes. Names were checked against the string tables of the libraries."""

from rocsolid.model.evidence import Evidence, claim, issue, source
from rocsolid.model.finding import Severity
from rocsolid.model.platform import Platform
from rocsolid.model.setting import Condition, Hazard, Owner, Recommendation, Setting, on

_ROCM = on(Platform.ROCM)
_HIP = "HIP runtime 6.4.3 and 7.2.4, libamdhip64 string table"
_HSA = "ROCr runtime 7.2.4, libhsa-runtime64 string table"


def _in(library: str, name: str) -> Evidence:
    return source(library, f"{name} is among the names the library asks for.")


def _serialises(name: str, summary: str, debug: str, platform: Condition, evidence: Evidence) -> Setting:
    """A switch that makes the host wait for the device: for debugging, and ruinous when forgotten."""
    values = ("1", "2", "3")
    return Setting(
        owner=Owner.PROCESS,
        name=name,
        value_type=str,
        summary=summary,
        recommendations=(
            Recommendation(
                profile="debug",
                value=debug,
                why="An error appears at the call that caused it.",
                evidence=(evidence,),
                when=platform,
            ),
            Recommendation(
                profile="safe",
                value=None,
                why="For debugging only: every launch waits for the device.",
                evidence=(evidence,),
                when=platform,
            ),
        ),
        hazards=tuple(
            Hazard(
                value=value,
                severity=Severity.WARNING,
                why="Every launch waits for the device, and waiting inside a graph capture breaks the capture.",
                evidence=(evidence,),
            )
            for value in values
        ),
    )


SETTINGS = (
    _serialises(
        "HIP_LAUNCH_BLOCKING",
        "1 makes every kernel launch wait for the kernel.",
        "1",
        _ROCM,
        _in(_HIP, "HIP_LAUNCH_BLOCKING"),
    ),
    _serialises(
        "AMD_SERIALIZE_KERNEL",
        "1 waits before, 2 after, 3 before and after every kernel.",
        "3",
        _ROCM,
        _in(_HIP, "AMD_SERIALIZE_KERNEL"),
    ),
    _serialises(
        "AMD_SERIALIZE_COPY",
        "1 waits before, 2 after, 3 before and after every copy.",
        "3",
        _ROCM,
        _in(_HIP, "AMD_SERIALIZE_COPY"),
    ),
    _serialises(
        "CUDA_LAUNCH_BLOCKING",
        "1 makes every kernel launch wait for the kernel.",
        "1",
        on(Platform.CUDA),
        source("CUDA programming guide, asynchronous execution", "1 disables asynchronous launches."),
    ),
    Setting(
        owner=Owner.PROCESS,
        name="AMD_LOG_LEVEL",
        value_type=str,
        summary="How much the HIP runtime prints: 0 nothing, 4 every call.",
        recommendations=(
            Recommendation(
                profile="safe",
                value=None,
                why="Unset prints nothing.",
                evidence=(_in(_HIP, "AMD_LOG_LEVEL"),),
                when=_ROCM,
            ),
        ),
        hazards=tuple(
            Hazard(
                value=level,
                severity=Severity.WARNING,
                why="The runtime prints a line for every call, which can slow a program down many times over.",
                evidence=(_in(_HIP, "AMD_LOG_LEVEL"),),
            )
            for level in ("3", "4", "5")
        ),
        notes="4 together with a search for hipError is AMD's advice when a capture fails without a reason.",
    ),
    Setting(
        owner=Owner.PROCESS,
        name="HIP_FORCE_DEV_KERNARG",
        value_type=str,
        summary="1 puts kernel arguments into device memory.",
        candidates=("0", "1"),
        valid=_ROCM,
        notes="AMD's tuning pages promise 2 to 3 microseconds per launch; we have not measured it, so the tuner tries it.",
        evidence=(
            _in(_HIP, "HIP_FORCE_DEV_KERNARG"),
            claim("AMD's workload tuning guide", "Saves 2 to 3 µs per launch."),
        ),
    ),
    Setting(
        owner=Owner.PROCESS,
        name="GPU_MAX_HW_QUEUES",
        value_type=str,
        summary="How many hardware queues the streams of a process share.",
        candidates=("1", "2", "4", "8"),
        valid=_ROCM,
        notes="More streams than queues means that streams wait for each other.",
        evidence=(
            issue("pytorch/torchtitan#4032", "Too few queues serialise streams that should overlap."),
            _in(_HIP, "GPU_MAX_HW_QUEUES"),
        ),
    ),
    Setting(
        owner=Owner.PROCESS,
        name="HSA_NO_SCRATCH_RECLAIM",
        value_type=str,
        summary="1 keeps scratch memory of kernels that spill instead of giving it back after each.",
        candidates=("0", "1"),
        recommendations=(
            Recommendation(
                profile="balanced",
                value="1",
                why="Giving scratch memory back makes collectives 5 to 10 times slower on this chip.",
                evidence=(issue("ROCm/rocm-systems#8657", "5 to 10 times slower on gfx90a."),),
                when=on(Platform.ROCM, rocm="7.13..", archs=("gfx90a",)),
            ),
        ),
        valid=_ROCM,
        notes="RCCL of some releases refuses to start without it. It holds memory for the life of the process.",
        evidence=(issue("ROCm/rccl#1867", "RCCL asks for it at start."), _in(_HSA, "HSA_NO_SCRATCH_RECLAIM")),
    ),
    Setting(
        owner=Owner.PROCESS,
        name="HSA_ENABLE_SDMA",
        value_type=str,
        summary="0 copies with kernels instead of the copy engines.",
        candidates=("0", "1"),
        valid=_ROCM,
        evidence=(_in(_HSA, "HSA_ENABLE_SDMA"),),
    ),
    Setting(
        owner=Owner.PROCESS,
        name="HSA_ENABLE_IPC_MODE_LEGACY",
        value_type=str,
        summary="1 shares device memory between processes in the older way.",
        valid=_ROCM,
        notes="Stops a leak on ROCm 7.2.0 to 7.2.4 with MI chips, and breaks sharing on RDNA cards.",
        evidence=(
            issue("ROCm/rocm-libraries#6266", "Memory shared between processes leaks."),
            _in(_HSA, "HSA_ENABLE_IPC_MODE_LEGACY"),
        ),
    ),
    Setting(
        owner=Owner.PROCESS,
        name="HSA_OVERRIDE_GFX_VERSION",
        value_type=str,
        summary="Pretends that the chip is another one.",
        hazards=(
            Hazard(
                value="",
                contains=True,
                severity=Severity.WARNING,
                why="Kernels built for another chip run on this one; they may crash or answer wrongly.",
                evidence=(issue("ROCm/legacy-rocm-build#5238", "Faults with the chip's version overridden."),),
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
            issue("ROCm/clr#280", "The path without virtual memory breaks address stability on ROCm 7.0."),
            _in(_HIP, "HIP_MEM_POOL_USE_VM"),
        ),
    ),
    Setting(
        owner=Owner.PROCESS,
        name="DEBUG_CLR_GRAPH_PACKET_CAPTURE",
        value_type=str,
        summary="How HIP graphs were recorded in ROCm 6.",
        valid=on(Platform.ROCM, rocm="..7.1"),
        notes="In libamdhip64 6.4.3, gone in 7.2.4.",
        evidence=(source(_HIP, "In 6.4.3, not in 7.2.4."),),
    ),
    Setting(
        owner=Owner.PROCESS,
        name="DEBUG_HIP_GRAPH_SEGMENT_SCHEDULING",
        value_type=str,
        summary="0 schedules HIP graphs node by node, which survives very long graphs and launches them slowly.",
        valid=on(Platform.ROCM, rocm="7.2.."),
        notes="Run against a pretend device: 40,000 nodes launch in 484 ms of host time instead of 2 ms, and do not crash.",
        evidence=(
            source(_HIP, "In 7.2.4, not in 6.4.3."),
            issue("ROCm/legacy-rocm-build#6602", "Instantiating a long graph overflows the stack."),
        ),
    ),
    Setting(
        owner=Owner.PROCESS,
        name="DEBUG_HIP_GRAPH_DOT_PRINT",
        value_type=str,
        summary="Writes every HIP graph as a drawing when it is instantiated.",
        recommendations=(
            Recommendation(
                profile="debug",
                value="1",
                why="The only look into a captured HIP graph that needs no extra tool.",
                evidence=(_in(_HIP, "DEBUG_HIP_GRAPH_DOT_PRINT"),),
                when=_ROCM,
            ),
        ),
        valid=_ROCM,
    ),
    Setting(
        owner=Owner.PROCESS,
        name="HIP_CACHE_ENABLED",
        value_type=str,
        summary="Named by a guide as a switch for a compile cache.",
        no_effect="Neither libamdhip64 6.4.3 nor 7.2.4 contains the name, nor do torch and Triton.",
        evidence=(source(_HIP, "The name does not occur."),),
    ),
    Setting(
        owner=Owner.PROCESS,
        name="HIP_VISIBLE_DEVICES",
        value_type=str,
        summary="Which devices a HIP program sees, among those ROCr shows.",
        valid=_ROCM,
        evidence=(_in(_HIP, "HIP_VISIBLE_DEVICES"),),
    ),
    Setting(
        owner=Owner.PROCESS,
        name="ROCR_VISIBLE_DEVICES",
        value_type=str,
        summary="Which devices the ROCr runtime shows to anyone.",
        valid=_ROCM,
        evidence=(_in(_HSA, "ROCR_VISIBLE_DEVICES"),),
    ),
    Setting(
        owner=Owner.PROCESS,
        name="CUDA_VISIBLE_DEVICES",
        value_type=str,
        summary="Which devices a CUDA program sees; HIP reads it too.",
        evidence=(_in(_HIP, "CUDA_VISIBLE_DEVICES"),),
    ),
)
