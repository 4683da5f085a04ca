"""What is: the machine, the build and the effective settings at one moment."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from rocsolid.model.platform import Platform


class Route(Enum):
    """How the settings were read."""

    STATIC = "static"  # from torch's source and the environment; nothing imported
    LIVE = "live"  # from a fresh interpreter that imported torch's compiler
    PROCESS = "process"  # from this very process


class Origin(Enum):
    """Where a setting's value comes from."""

    UPSTREAM = "upstream"  # the default of that release
    VARIABLE = "variable"  # an environment variable moved the default
    FORCED = "forced"  # an environment variable that beats any assignment
    OVERRIDE = "override"  # TORCH_COMPILE_OVERRIDE_*: replaces even options given to a call
    STARTUP = "startup"  # sitecustomize, usercustomize or a .pth file
    LIBRARY = "library"  # an import of somebody else's package
    PATCHED = "patched"  # the installed config.py is not the release's
    ASSIGNED = "assigned"  # code in this process
    MUTATED = "mutated"  # the default itself was overwritten in this process
    ELSEWHERE = "elsewhere"  # another thread or task of this process sees another value


class Integrity(Enum):
    """How an installed file compares with what was released."""

    RELEASED = "released"  # the very bytes of an official release
    RECORDED = "recorded"  # as its wheel recorded it
    CHANGED = "changed"  # not as its wheel recorded it
    DIFFERENT = "different"  # no usable record, and not the bytes of that release
    UNKNOWN = "unknown"  # no usable record, and a release we hold no copy of


class Ending(Enum):
    """How a child process that we asked something ended."""

    ANSWERED = "answered"
    FAILED = "failed"  # ended with an error of its own
    CRASHED = "crashed"  # ended by a signal
    HUNG = "hung"  # still silent at its deadline
    WRONG = "wrong"  # answered, but not the right thing
    MISSING = "missing"  # there is nothing to ask
    SKIPPED = "skipped"  # does not apply here


@dataclass(frozen=True, kw_only=True)
class Observed:
    """A setting's effective value beside the default of that very release."""

    value: object
    upstream: object
    origin: Origin = Origin.UPSTREAM
    by: str = ""  # the variable, file and line, or package that is behind it
    elsewhere: object = None  # what other threads of this process see, where that differs
    where: str = ""  # which threads
    stands_for: str = ""  # the entry an alias leads to

    @property
    def moved(self) -> bool:
        """Whether anything but the release decided the value."""
        return self.origin is not Origin.UPSTREAM


@dataclass(frozen=True, kw_only=True)
class Device:
    """One accelerator."""

    index: int
    name: str
    arch: str  # gfx942, sm_90
    memory_bytes: int
    platform: Platform
    driver: str = ""


@dataclass(frozen=True, kw_only=True)
class ConfigFile:
    """A file of torch's that decides defaults."""

    owner: str  # inductor, dynamo, ...
    file: str  # relative to the package
    integrity: Integrity
    digest: str = ""


@dataclass(frozen=True, kw_only=True)
class TorchBuild:
    """The installed torch, as its own files describe it."""

    version: str
    hip: str = ""
    cuda: str = ""
    git: str = ""
    folder: str = ""
    files: tuple[ConfigFile, ...] = ()
    table: str = ""  # the release whose defaults we hold beside it, if any
    wants: tuple[str, ...] = ()  # packages its own metadata pins, as name==version


@dataclass(frozen=True, kw_only=True)
class Container:
    """The container we are in."""

    engine: str  # docker, podman, kubernetes, apptainer
    image: str = ""
    image_id: str = ""


@dataclass(frozen=True, kw_only=True)
class Cache:
    """A folder in which compiled code is kept."""

    name: str
    folder: str
    free_bytes: int | None
    writable: bool


@dataclass(frozen=True, kw_only=True)
class Host:
    """The machine below the container."""

    system: str = ""
    cores: int = 0
    memory_bytes: int = 0
    shared_memory_bytes: int | None = None
    numa_nodes: int = 0
    numa_balancing: bool | None = None
    compiler: str = ""
    limits: Mapping[str, int | None] = field(default_factory=dict)  # None means unlimited
    kfd: str = ""  # access to /dev/kfd: "", "ok", "denied"
    nvidia: bool = False  # an NVIDIA driver is loaded


@dataclass(frozen=True, kw_only=True)
class Hook:
    """Code that runs at interpreter start, before the user's."""

    kind: str  # sitecustomize, usercustomize, pth
    place: str
    says: str = ""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a child process that we asked something had to say."""

    name: str
    ending: Ending
    detail: str = ""
    seconds: float = 0.0
    facts: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Environment:
    """The snapshot that every judgement is made from."""

    taken_at: str
    route: Route
    platform: Platform
    rocm_version: str = ""  # release of the ROCm stack, as far as it can be known
    cuda_version: str = ""
    driver: str = ""
    python: str = ""
    torch: TorchBuild | None = None
    devices: tuple[Device, ...] = ()
    container: Container | None = None
    content_id: str = ""  # stands for the image when its name cannot be seen
    host: Host = Host()
    packages: Mapping[str, str] = field(default_factory=dict)
    triton_copies: tuple[str, ...] = ()  # distributions that each bring a `triton` package
    libraries: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # copies of vendor libraries
    caches: tuple[Cache, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Observed] = field(default_factory=dict)
    hooks: tuple[Hook, ...] = ()
    tools: tuple[Answer, ...] = ()
    checks: tuple[Answer, ...] = ()
    gaps: tuple[str, ...] = ()  # what could not be found out, and why
    pretended: str = ""  # chip and release that this process was told to pretend, as `gfx942@7.2.1`

    @property
    def torch_version(self) -> str:
        """Empty when there is no torch."""
        return self.torch.version if self.torch else ""

    @property
    def usable(self) -> tuple[Device, ...]:
        """The accelerators that this torch was built for."""
        return tuple(device for device in self.devices if device.platform is self.platform)

    @property
    def values(self) -> Mapping[str, object]:
        """Effective value by setting id."""
        return {name: observed.value for name, observed in self.settings.items()}
