"""What a dry run saw: graphs, kernels, what each costs on a chip, and what will not work there."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from rocsolid.model.finding import Finding

DRYRUN_SCHEMA = "rocsolid/dryrun/1"


@dataclass(frozen=True, kw_only=True)
class Resources:
    """What one compiled kernel asks of the chip; every figure is the compiler's own unless said otherwise."""

    registers: int  # vector registers of a lane; on CDNA those of the matrix unit are among them
    matrix_registers: int = 0  # AGPRs
    scalar_registers: int = 0
    spills: int = 0  # vector registers that live in memory
    scalar_spills: int = 0
    scratch_bytes: int = 0  # memory of a lane
    lds_bytes: int = 0  # local memory of a workgroup
    lds_limit_bytes: int = 0
    wavefront: int = 64
    register_occupancy: int = 0  # waves a SIMD holds as far as registers go
    occupancy: int = 0  # waves a SIMD holds with local memory folded in: ours
    block: int = 0  # elements of the widest tensor: ours, read from the intermediate code
    lanes_used: float = 1.0  # of the workgroup's lanes by that tensor: ours
    matrix_instructions: int = 0
    code_bytes: int = 0

    @property
    def fits(self) -> bool:
        """Whether a launch would be accepted."""
        return self.lds_bytes <= self.lds_limit_bytes


@dataclass(frozen=True, kw_only=True)
class KernelConfig:
    """A kernel with its block sizes chosen, compiled or not."""

    values: Mapping[str, object] = field(default_factory=dict)  # block sizes and other constants
    warps: int = 0
    stages: int = 0
    grid: tuple[int, ...] = ()  # empty where it is not known before the run
    resources: Resources | None = None
    error: str = ""
    seconds: float = 0.0  # to compile; small when it came from the cache
    asm: str = ""  # on request

    @property
    def label(self) -> str:
        """`XBLOCK=2 R0_BLOCK=2048 warps=8 stages=1`."""
        return " ".join([*(f"{k}={v}" for k, v in self.values.items()), f"warps={self.warps}", f"stages={self.stages}"])


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """A kernel that Inductor wrote or the user did."""

    name: str
    origin: str  # inductor, user or template
    graph: str = ""  # where it is launched first; two graphs may call two kernels by one name
    source: str
    places: tuple[str, ...] = ()  # file:line of the model code, or of the user's kernel, first
    foreign: tuple[str, ...] = ()  # what in it belongs to the other vendor
    fp8: tuple[str, ...] = ()
    configs: tuple[KernelConfig, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ExternCall:
    """A call out of the generated code into a library."""

    name: str
    library: str
    count: int
    capture: str = ""  # why it is not safe in a device graph; empty when nothing is known against it
    evidence: str = ""  # id of the known problem
    places: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Unfit:
    """An operation that keeps a graph from being captured."""

    reason: str
    place: str = ""


@dataclass(frozen=True, kw_only=True)
class Fp8Use:
    """A number format of eight bits, and where the model uses it."""

    format: str
    place: str = ""


@dataclass(frozen=True, kw_only=True)
class DryGraph:
    """One graph as Inductor lowered it."""

    name: str
    kind: str  # forward, backward or inference
    kernels: tuple[str, ...] = ()  # names, in the order of launch
    externs: tuple[ExternCall, ...] = ()
    nodes: int = 0  # launches and library calls: at least as many nodes will a capture have
    partitions: int = 1
    unfit: tuple[Unfit, ...] = ()
    fp8: tuple[Fp8Use, ...] = ()
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class GraphBreak:
    """Where a model falls apart into several graphs."""

    reason: str
    place: str = ""


@dataclass(frozen=True, kw_only=True)
class Search:
    """What autotuning would try for one operation."""

    op: str
    shapes: str
    choices: int
    compiled: int  # how many of them this dry run compiled
    seconds: float  # that took, on one core
    failed: int = 0
    place: str = ""


@dataclass(frozen=True, kw_only=True)
class DryRun:
    """One workload on one chip."""

    target: str
    product: str
    torch: str = ""
    triton: str = ""
    graphs: tuple[DryGraph, ...] = ()
    kernels: tuple[Kernel, ...] = ()
    breaks: tuple[GraphBreak, ...] = ()
    searches: tuple[Search, ...] = ()
    notes: tuple[str, ...] = ()  # what was done otherwise than on the device
    seconds: float = 0.0

    def kernel(self, name: str) -> Kernel:
        """The kernel of that name; raises KeyError."""
        for kernel in self.kernels:
            if kernel.name == name:
                return kernel
        raise KeyError(name)


@dataclass(frozen=True, kw_only=True)
class FailedTarget:
    """A chip for which there is no run, though there is one for another."""

    target: str
    error: str
    exit_code: int = 3


@dataclass(frozen=True, kw_only=True)
class DryRunRecord:
    """A workload on every chip that was asked for, and what was found there."""

    workload: str
    mode: str = "default"
    train: bool = False
    profile: str = ""
    runs: tuple[DryRun, ...] = ()
    against: DryRun | None = None  # the same for the other vendor
    failed: tuple[FailedTarget, ...] = ()
    findings: tuple[Finding, ...] = ()
