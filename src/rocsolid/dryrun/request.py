"""The request that a dry run sends to its child process, and the result."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from rocsolid.model.dryrun import DryRun, SkippedKernel

REQUEST_SCHEMA = "rocsolid/dryrun-request/1"
RESULT_SCHEMA = "rocsolid/dryrun-result/1"


@dataclass(frozen=True, kw_only=True)
class KernelSignature:
    """How to compile a kernel: types of its arguments, values of its constants, options."""

    name: str
    file: str = ""  # empty: any file with a kernel of that name
    origin: str = "given"  # given, recorded or inferred
    types: Mapping[str, str] = field(default_factory=dict)
    constants: Mapping[str, object] = field(default_factory=dict)
    options: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Request:
    """One workload, or the Triton kernels of files and folders, for one chip."""

    target: str
    workload: str = ""
    kernels: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()  # files or folders with tests, which are run to record the kernels that they launch
    find_signatures: bool = False  # of the kernels, compile none
    only: tuple[str, ...] = ()  # kernels to compile, `name` or `file.py:name`; empty: all
    signatures: tuple[KernelSignature, ...] = ()
    train: bool = False
    mode: str = "default"
    options: Mapping[str, object] = field(default_factory=dict)
    dynamic: bool | None = None
    configs: str = "all"  # of an autotuned kernel: all, best or first
    max_choices: int = 0  # kernels of each autotuning search to compile
    guard: str = ""  # path of the C++ library that simulates the GPU; empty for the kernels of a file
    kernel_deadline_s: float = 0.0  # for each kernel; 0: no limit
    deadline_s: float = 0.0  # kernels that are not started by then are not compiled; 0: no limit
    asm: bool = False
    save: str = ""
    journal: str = ""
    parent_pid: int = 0  # the child ends when this process ends


@dataclass(frozen=True, kw_only=True)
class ChildResult:
    """The dry run, the signatures of kernels, or the error."""

    run: DryRun | None = None
    signatures: tuple[KernelSignature, ...] = ()
    skipped: tuple[SkippedKernel, ...] = ()
    error: str = ""
    usage_error: bool = False  # the error is in the user's input
