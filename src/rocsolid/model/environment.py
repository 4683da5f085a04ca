"""A snapshot of one machine: hardware, torch build, container and the settings in effect."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from rocsolid.model.notebook import NotebookResult
from rocsolid.model.platform import Platform


class ProbeMode(Enum):
    """How the probe read the settings."""

    STATIC = "static"  # from torch's source files and the environment variables; torch was not imported
    LIVE = "live"  # in a fresh interpreter that imports torch's compiler (`--live`)
    THIS_PROCESS = "this-process"  # in the process that called `rs.probe`, which had imported torch's compiler


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
    """How an installed file compares with the file of the official release, and with the hash in its wheel's RECORD."""

    RELEASED = "released"  # has the same bytes as the official release
    RECORDED = "recorded"  # differs from the official release, or rocsolid does not know it; matches the RECORD
    DIFFERS_FROM_WHEEL = "differs-from-wheel"  # does not match the RECORD: it was edited after the installation
    DIFFERS_FROM_RELEASE = "differs-from-release"  # differs from the official release; there is no usable RECORD
    UNKNOWN = "unknown"  # there is no usable RECORD, and rocsolid does not know that release


class CheckStatus(Enum):
    """How a command in a child process ended."""

    OK = "ok"  # ended without an error
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
        """Whether something else than the release's default set the value."""
        return self.origin is not Origin.DEFAULT


@dataclass(frozen=True, kw_only=True)
class Device:
    """One GPU."""

    index: int
    name: str
    arch: str  # gfx942, sm_90
    memory_bytes: int
    platform: Platform
    driver: str = ""  # the version of the driver


@dataclass(frozen=True, kw_only=True)
class ConfigFile:
    """One of torch's config modules; they define the defaults of the settings."""

    owner: str  # the first part of the ids of its settings: inductor, dynamo, ...
    file: str  # relative to the torch package
    integrity: Integrity
    digest: str = ""  # SHA-256


@dataclass(frozen=True, kw_only=True)
class TorchBuild:
    """The installed torch, as its own files describe it."""

    version: str
    hip: str = ""  # the HIP version that torch was built with
    cuda: str = ""  # the CUDA version that torch was built with
    git_commit: str = ""
    folder: str = ""
    files: tuple[ConfigFile, ...] = ()
    known_release: str = ""  # the official release whose defaults the settings are compared with, if rocsolid knows it
    required_triton: tuple[str, ...] = ()  # the Triton that torch's metadata requires, as name==version


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
    compiler: str = ""  # the path of the C++ compiler that Inductor would use
    limits: Mapping[str, int | None] = field(default_factory=dict)  # the process's limits by name; None means unlimited
    kfd_access: str = ""  # access to /dev/kfd: "" (does not exist), "ok", "denied"
    nvidia_driver: bool = False  # whether an NVIDIA driver is loaded


@dataclass(frozen=True, kw_only=True)
class StartupHook:
    """Code that runs when the interpreter starts, before the user's code."""

    kind: str  # sitecustomize, usercustomize, pth
    file: str
    code: str = ""  # the line of a .pth file


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """The result of one command that ran in a child process: a vendor's tool or an active check."""

    name: str
    status: CheckStatus
    detail: str = ""
    seconds: float = 0.0
    measurements: Mapping[str, object] = field(default_factory=dict)  # such as `relative_error`, by name


@dataclass(frozen=True, kw_only=True)
class Environment(NotebookResult):
    """A snapshot of one machine. Rules check it, and plans are resolved for it."""

    taken_at: str
    probe_mode: ProbeMode
    platform: Platform
    rocm_version: str = ""  # 7.2 where the patch level cannot be determined, otherwise 7.2.1
    cuda_version: str = ""
    driver: str = ""
    python: str = ""
    torch: TorchBuild | None = None
    devices: tuple[Device, ...] = ()
    container: Container | None = None
    image_fingerprint: str = ""  # a digest of versions and library sizes; identifies an image without its name
    host: Host = Host()
    packages: Mapping[str, str] = field(default_factory=dict)
    triton_copies: tuple[str, ...] = ()  # distributions that each install a `triton` package
    libraries: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # paths of the copies of each vendor library
    caches: tuple[CacheFolder, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)  # the environment variables that matter to torch
    settings: Mapping[str, SettingValue] = field(default_factory=dict)
    startup_hooks: tuple[StartupHook, ...] = ()
    tools: tuple[CheckResult, ...] = ()  # vendors' tools such as rocminfo
    active_checks: tuple[CheckResult, ...] = ()
    unknowns: tuple[str, ...] = ()  # what could not be determined, and why
    pretended: str = ""  # the pretended chip and release, as `gfx942@7.2.1`

    @property
    def torch_version(self) -> str:
        """The version of torch; empty when torch is not installed."""
        return self.torch.version if self.torch else ""

    @property
    def usable_devices(self) -> tuple[Device, ...]:
        """The GPUs of the platform that this torch was built for."""
        return tuple(device for device in self.devices if device.platform is self.platform)

    @property
    def setting_values(self) -> Mapping[str, object]:
        """The values in effect, by setting id."""
        return {name: setting.value for name, setting in self.settings.items()}
