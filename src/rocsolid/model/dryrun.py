"""The result of a dry run: graphs, kernels with their resource usage on a chip, and findings."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from rocsolid.model.finding import Finding
from rocsolid.model.notebook import NotebookResult

DRYRUN_SCHEMA = "rocsolid/dryrun/1"
_MAX_LABEL_CHARACTERS = 48


@dataclass(frozen=True, kw_only=True)
class Resources:
    """Resource usage of one compiled kernel. The values come from the compiler; those marked "computed" are computed from them."""

    registers: int  # vector registers (VGPRs) per lane; on CDNA this includes the AGPRs
    matrix_registers: int = 0  # AGPRs per lane
    scalar_registers: int = 0
    spills: int = 0  # vector registers spilled to memory
    scalar_spills: int = 0
    scratch_bytes: int = 0  # per lane
    lds_bytes: int = 0  # local data share (shared memory) per workgroup
    lds_limit_bytes: int = 0
    wavefront: int = 64
    register_occupancy: int = 0  # waves per SIMD, limited by registers only
    occupancy: int = 0  # waves per SIMD, limited by registers and LDS: computed
    block: int = 0  # elements of the widest tensor in the intermediate code: computed
    lanes_used: float = 1.0  # share of the workgroup's lanes that this tensor uses: computed
    matrix_instructions: int = 0
    code_bytes: int = 0

    @property
    def fits(self) -> bool:
        """Whether the kernel can be launched: its LDS is within the limit."""
        return self.lds_bytes <= self.lds_limit_bytes


@dataclass(frozen=True, kw_only=True)
class KernelConfig:
    """One configuration of a kernel: block sizes, warps and stages; with resources if it compiled, otherwise with the error."""

    values: Mapping[str, object] = field(default_factory=dict)  # block sizes and other constants
    warps: int = 0
    stages: int = 0
    grid: tuple[int, ...] = ()  # empty if it is known only at run time
    resources: Resources | None = None
    error: str = ""
    seconds: float = 0.0  # compile time; small if it came from the cache
    asm: str = ""  # only with asm=True

    @property
    def label(self) -> str:
        """`XBLOCK=2 R0_BLOCK=2048 warps=8 stages=1`."""
        return self.label_without({})

    def label_without(self, common: Mapping[str, object]) -> str:
        """The label without values that are listed elsewhere."""
        values = (f"{name}={value}" for name, value in self.values.items() if name not in common)
        return " ".join([*values, f"warps={self.warps}", f"stages={self.stages}"])


@dataclass(frozen=True, kw_only=True)
class DryRunKernel:
    """A kernel that Inductor generated or the user wrote."""

    name: str
    origin: str  # inductor, user or template
    graph: str = ""  # the graph that launches it first; two graphs may have different kernels of the same name
    source: str
    signature: str = ""  # of a kernel that was compiled without a workload: where its types and constants come from
    locations: tuple[str, ...] = ()  # file:line of the model code; a user's kernel first
    foreign: tuple[str, ...] = ()  # inline assembly or library functions of the other vendor
    fp8: tuple[str, ...] = ()
    descriptors: bool = False  # uses tensor descriptors, which NVIDIA GPUs copy with TMA
    configs: tuple[KernelConfig, ...] = ()

    @property
    def problems(self) -> tuple[str, ...]:
        """`fails` if no configuration compiles, `spills` and `lds` if every compiled one does."""
        used = [config.resources for config in self.configs if config.resources]
        if not used:
            return ("fails",)
        found = {"spills": all(u.spills for u in used), "lds": not any(u.fits for u in used)}
        return tuple(name for name, present in found.items() if present)

    @property
    def common_values(self) -> dict[str, object]:
        """Constants that are the same in every configuration; empty if the labels are short enough to repeat them."""
        if all(len(config.label) <= _MAX_LABEL_CHARACTERS for config in self.configs):
            return {}
        first, *others = (config.values for config in self.configs)
        return {name: value for name, value in first.items() if all(o.get(name) == value for o in others)}


@dataclass(frozen=True, kw_only=True)
class ExternCall:
    """A call of the generated code into a library, such as a GEMM in hipBLASLt."""

    name: str
    library: str
    count: int
    capture: str = ""  # why it is not safe in a CUDA/HIP graph; empty if no problem is known
    evidence: str = ""  # id of the known problem
    locations: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class CaptureBlocker:
    """An operation that prevents the capture of a graph."""

    reason: str
    location: str = ""


@dataclass(frozen=True, kw_only=True)
class Fp8Use:
    """An FP8 format and where the model uses it."""

    format: str
    location: str = ""


@dataclass(frozen=True, kw_only=True)
class DryRunGraph:
    """One graph, as Inductor lowered it."""

    name: str
    kind: str  # forward, backward or inference
    kernels: tuple[str, ...] = ()  # names, in launch order
    externs: tuple[ExternCall, ...] = ()
    nodes: int = 0  # launches and library calls: the minimum number of nodes of a captured graph
    partitions: int = 1
    capture_blockers: tuple[CaptureBlocker, ...] = ()
    fp8: tuple[Fp8Use, ...] = ()
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class DryRunBreak:
    """A graph break in the model."""

    reason: str
    location: str = ""


@dataclass(frozen=True, kw_only=True)
class AutotuneSearch:
    """The autotuning search for one operation."""

    op: str
    shapes: str
    choices: int
    compiled: int  # how many of them this dry run compiled
    seconds: float  # compile time of those, on one core
    failed: int = 0
    location: str = ""


@dataclass(frozen=True, kw_only=True)
class SkippedKernel:
    """A kernel that was found and not compiled, because nothing shows how it is called."""

    name: str
    location: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class DryRun:
    """One workload, or the kernels of a project, compiled for one chip."""

    target: str
    product: str
    torch: str = ""
    triton: str = ""
    graphs: tuple[DryRunGraph, ...] = ()
    kernels: tuple[DryRunKernel, ...] = ()
    breaks: tuple[DryRunBreak, ...] = ()
    searches: tuple[AutotuneSearch, ...] = ()
    skipped: tuple[SkippedKernel, ...] = ()
    notes: tuple[str, ...] = ()  # how the dry run differs from a run on the GPU
    seconds: float = 0.0

    def kernel(self, name: str) -> DryRunKernel:
        """The kernel with that name; raises KeyError."""
        for kernel in self.kernels:
            if kernel.name == name:
                return kernel
        raise KeyError(name)


@dataclass(frozen=True, kw_only=True)
class FailedTarget:
    """A chip for which the dry run failed, while it worked for another."""

    target: str
    error: str
    exit_code: int = 3


@dataclass(frozen=True, kw_only=True)
class DryRunRecord(NotebookResult):
    """A workload, compiled for every requested chip, with the findings."""

    workload: str
    mode: str = "default"
    train: bool = False
    profile: str = ""
    runs: tuple[DryRun, ...] = ()
    compared: DryRun | None = None  # the same workload for the other vendor's chip
    failed: tuple[FailedTarget, ...] = ()
    findings: tuple[Finding, ...] = ()
