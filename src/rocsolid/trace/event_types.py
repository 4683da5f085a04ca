"""The shapes of trace events, as far as we read them: decoding checks everything and keeps only this."""

from typing import Any, Final, Literal

from msgspec import Raw, Struct, defstruct, field

# Producers disagree about numbers and text: device 0 or "0", bytes 512 or "512".
Loose = int | float | str | None
_NOTHING: Final = Raw(b"")


class Args(Struct, gc=False, frozen=True):
    """What an event says about itself."""

    device: Loose = None
    stream: Loose = None
    correlation: Loose = -1
    external: Loose = field(name="External id", default=-1)
    bytes: Loose = -1
    grid: Raw = _NOTHING
    block: Raw = _NOTHING
    registers: Loose = field(name="registers per thread", default=None)
    shared: Loose = field(name="shared memory", default=None)


class Complete(Struct, tag_field="ph", tag="X", gc=False):
    """An event with a beginning and a length. Times stay text until they become exact nanoseconds."""

    ts: Raw = _NOTHING
    dur: int | float | None = None
    name: str = ""
    cat: str = ""
    pid: Loose = None
    tid: Loose = None
    args: Args | None = None


class HostArgs(Struct, gc=False, frozen=True):
    """As much of it as is read of what the host does."""

    correlation: Loose = -1
    external: Loose = field(name="External id", default=-1)


class ByCategory(Struct, gc=False):
    """The same, for a decoder that tells events apart by their category; `cat` is known from the type."""

    ph: Literal["X"]
    ts: Raw = _NOTHING
    dur: int | float | None = None
    name: str = ""
    pid: Loose = None
    tid: Loose = None


class DeviceByCategory(ByCategory, gc=False):
    """What the device does."""

    args: Args | None = None


class HostByCategory(ByCategory, gc=False):
    """What the host does."""

    args: HostArgs | None = None


class MemoryArgs(Struct, gc=False, frozen=True):
    """What the allocator says."""

    bytes: Loose = field(name="Bytes", default=None)
    allocated: Loose = field(name="Total Allocated", default=None)
    reserved: Loose = field(name="Total Reserved", default=None)
    device: Loose = field(name="Device Id", default=None)
    device_type: Loose = field(name="Device Type", default=None)


class Instant(Struct, tag_field="ph", tag="i", gc=False):
    """A moment; the allocator reports through these."""

    ts: Raw = _NOTHING
    name: str = ""
    args: MemoryArgs | None = None


class MetaArgs(Struct, gc=False, frozen=True):
    """Names for processes and threads."""

    name: Loose = None
    labels: Loose = None


class Meta(Struct, tag_field="ph", tag="M", gc=False):
    """A name for a process or a thread."""

    name: str = ""
    pid: Loose = None
    tid: Loose = None
    args: MetaArgs | None = None


# Every other phase that the format knows is checked, counted and set aside.
_OTHERS: Final = tuple(
    defstruct(f"Phase{number}", [], tag_field="ph", tag=phase, gc=False)
    for number, phase in enumerate("BEIbneSTpFstfPCNODVvRc,()")
)


def event_type() -> Any:  # noqa: ANN401 - a union built at run time
    """All events, told apart by their phase."""
    union: Any = Complete | Instant | Meta
    for other in _OTHERS:
        union = union | other
    return union
