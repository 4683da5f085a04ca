"""A snapshot of one machine: hardware, torch build, container and the settings in effect."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from rocsolid.model.notebook import NotebookResult
from rocsolid.model.platform import Platform


class ProbeMode(Enum):
    """How the settings were read."""

    STATIC = "static"  # from torch's source and the environment; nothing imported
    LIVE = "live"  # in a fresh interpreter that imported torch's compiler
    PROCESS = "process"  # in this process


class Origin(Enum):
    """Where a setting's value comes from."""

    DEFAULT = "default"  # the release's own default
    VARIABLE = "variable"  # an environment variable that changes the default
    FORCED = "forced"  # an environment variable that overrides every assignment
    OVERRIDE = "override"  # TORCH_COMPILE_OVERRIDE_*: overrides even the options of one torch.compile call
    STARTUP = "startup"  # sitecustomize, usercustomize or a .pth file
    LIBRARY = "library"  # the import of another package
    PATCHED = "patched"  # the installed config.py differs from the release's
    ASSIGNED = "assigned"  # code in this process
    MUTATED = "mutated"  # the default itself was overwritten in this process
    OTHER_THREAD = "other-thread"  # the default here, but another thread or task of this process has another value


class Integrity(Enum):
    """How an installed file compares with the released one."""

    RELEASED = "released"  # byte for byte the official release
    RECORDED = "recorded"  # matches the RECORD of its wheel
    CHANGED = "changed"  # differs from the RECORD of its wheel
    DIFFERENT = "different"  # no usable RECORD, and not the bytes of that release
    UNKNOWN = "unknown"  # no usable RECORD, and rocsolid has no digest of that release


class CheckStatus(Enum):
    """How a command in a child process ended."""

    OK = "ok"
    FAILED = "failed"  # ended with an error
    CRASHED = "crashed"  # ended by a signal
    HUNG = "hung"  # killed at its deadline
    WRONG = "wrong"  # returned a wrong result
    MISSING = "missing"  # the command is not installed
    SKIPPED = "skipped"  # does not apply here


@dataclass(frozen=True, kw_only=True)
class SettingValue:
    """A setting's value in effect, next to the default of the installed release."""

    value: object
    default: object
    origin: Origin = Origin.DEFAULT
    set_by: str = ""  # the variable, the file:line or the package that set it
    other_thread_value: object = None  # the value in other threads of this process, if it differs
    other_threads: str = ""  # which threads: "every new thread", "another thread or task"
    alias_of: str = ""  # the id this entry is an alias of

    @property
    def changed(self) -> bool:
        """Whether anything but the release decided the value."""
        return self.origin is not Origin.DEFAULT


@dataclass(frozen=True, kw_only=True)
class Device:
    """One GPU."""

    index: int
    name: str
    arch: str  # gfx942, sm_90
    memory_bytes: int
    platform: Platform
    driver: str = ""


@dataclass(frozen=True, kw_only=True)
class ConfigFile:
    """One of torch's config modules, which hold the defaults."""

    owner: str  # inductor, dynamo, ...
    file: str  # relative to the torch package
    integrity: Integrity
    digest: str = ""


@dataclass(frozen=True, kw_only=True)
class TorchBuild:
    """The installed torch, as described by its own files."""

    version: str
    hip: str = ""
    cuda: str = ""
    git: str = ""
    folder: str = ""
    files: tuple[ConfigFile, ...] = ()
    known_release: str = ""  # the release whose defaults it is compared with, if rocsolid has them
    pinned: tuple[str, ...] = ()  # the Triton that torch's metadata requires, as name==version


@dataclass(frozen=True, kw_only=True)
class Container:
    """The container this process runs in."""

    engine: str  # docker, podman, kubernetes, apptainer
    image: str = ""
    image_id: str = ""


@dataclass(frozen=True, kw_only=True)
class CacheFolder:
    """A folder that holds compiled code."""

    name: str
    folder: str
    free_bytes: int | None
    writable: bool


@dataclass(frozen=True, kw_only=True)
class Host:
    """The machine: cores, memory, limits, compiler, access to the GPU."""

    system: str = ""
    cores: int = 0
    memory_bytes: int = 0
    shared_memory_bytes: int | None = None
    numa_nodes: int = 0
    numa_balancing: bool | None = None
    compiler: str = ""
    limits: Mapping[str, int | None] = field(default_factory=dict)  # None means unlimited
    kfd: str = ""  # access to /dev/kfd: "" (not there), "ok", "denied"
    nvidia: bool = False  # an NVIDIA driver is loaded


@dataclass(frozen=True, kw_only=True)
class StartupHook:
    """Code that runs when the interpreter starts, before the user's code."""

    kind: str  # sitecustomize, usercustomize, pth
    file: str
    code: str = ""  # the line of a .pth file


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """How one command in a child process ended: a vendor tool or an active check."""

    name: str
    status: CheckStatus
    detail: str = ""
    seconds: float = 0.0
    facts: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Environment(NotebookResult):
    """The snapshot that rules are checked against and plans are resolved for."""

    taken_at: str
    probe_mode: ProbeMode
    platform: Platform
    rocm_version: str = ""  # as precise as it can be determined
    cuda_version: str = ""
    driver: str = ""
    python: str = ""
    torch: TorchBuild | None = None
    devices: tuple[Device, ...] = ()
    container: Container | None = None
    content_id: str = ""  # identifies the image when its name cannot be read from inside
    host: Host = Host()
    packages: Mapping[str, str] = field(default_factory=dict)
    triton_copies: tuple[str, ...] = ()  # distributions that each install a `triton` package
    libraries: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # copies of vendor libraries
    caches: tuple[CacheFolder, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, SettingValue] = field(default_factory=dict)
    startup_hooks: tuple[StartupHook, ...] = ()
    tools: tuple[CheckResult, ...] = ()
    checks: tuple[CheckResult, ...] = ()
    unknowns: tuple[str, ...] = ()  # what could not be determined, and why
    pretended: str = ""  # the pretended chip and release, as `gfx942@7.2.1`

    @property
    def torch_version(self) -> str:
        """The version of torch; empty when torch is not installed."""
        return self.torch.version if self.torch else ""

    @property
    def usable_devices(self) -> tuple[Device, ...]:
        """The GPUs that this torch was built for."""
        return tuple(device for device in self.devices if device.platform is self.platform)

    @property
    def setting_values(self) -> Mapping[str, object]:
        """The value in effect by setting id."""
        return {name: seen.value for name, seen in self.settings.items()}
