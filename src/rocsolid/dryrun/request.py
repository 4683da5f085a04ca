"""The request that a dry run sends to its child process, and the result."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from rocsolid.model.dryrun import DryRun

REQUEST_SCHEMA = "rocsolid/dryrun-request/1"
RESULT_SCHEMA = "rocsolid/dryrun-result/1"


@dataclass(frozen=True, kw_only=True)
class KernelSignature:
    """How to compile a kernel of a file: types of its arguments, values of its constants, options."""

    name: str
    types: Mapping[str, str] = field(default_factory=dict)
    constants: Mapping[str, object] = field(default_factory=dict)
    options: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Request:
    """One workload, or the kernels of one file, for one chip."""

    target: str
    workload: str = ""
    file: str = ""
    signatures: tuple[KernelSignature, ...] = ()
    train: bool = False
    mode: str = "default"
    options: Mapping[str, object] = field(default_factory=dict)
    dynamic: bool | None = None
    max_choices: int = 0  # kernels of each autotuning search to compile
    guard: str = ""  # path of the C++ library that simulates the GPU; empty for the kernels of a file
    asm: bool = False
    save: str = ""
    journal: str = ""
    parent_pid: int = 0  # the child ends when this process ends


@dataclass(frozen=True, kw_only=True)
class ChildResult:
    """The dry run, or the error."""

    run: DryRun | None = None
    error: str = ""
    usage_error: bool = False  # the error is in the user's input
