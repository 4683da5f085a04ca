"""What a dry run is asked, as it goes to its child, and what comes back."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from rocsolid.model.dryrun import DryRun

REQUEST_SCHEMA = "rocsolid/dryrun-request/1"
ANSWER_SCHEMA = "rocsolid/dryrun-answer/1"


@dataclass(frozen=True, kw_only=True)
class KernelSignature:
    """How a kernel of a file is to be compiled: types of its arguments, values of its constants, options."""

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
    most_choices: int = 0  # of a search for the fastest kernel that are compiled
    guard: str = ""  # library of stand-ins; not for the kernels of a file
    asm: bool = False
    save: str = ""
    journal: str = ""
    asker: int = 0  # the process that waits for the answer


@dataclass(frozen=True, kw_only=True)
class ChildAnswer:
    """The run, or why there is none."""

    run: DryRun | None = None
    error: str = ""
    usage: bool = False  # whether the caller is to blame
