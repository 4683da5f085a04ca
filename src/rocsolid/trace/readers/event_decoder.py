"""Decodes the events of a torch.profiler trace into msgspec structs that hold only the fields we need."""

from operator import countOf
from typing import Any, Final, Literal

import msgspec
from msgspec import Raw, Struct, defstruct, field

from rocsolid.trace.columns import EventKind

# Kineto's categories, including those of torch before 1.12, on CUDA and ROCm.
DEVICE_CATEGORIES: Final = {
    "kernel": EventKind.KERNEL,
    "Kernel": EventKind.KERNEL,
    "gpu": EventKind.KERNEL,  # of programs that convert the output of rocprof
    "gpu_memcpy": EventKind.COPY,
    "Memcpy": EventKind.COPY,
    "gpu_memset": EventKind.MEMSET,
    "Memset": EventKind.MEMSET,
}
HOST_CATEGORIES: Final = {  # for each category, the table of `TraceColumns`
    **dict.fromkeys(("cuda_runtime", "cuda_driver", "hip_runtime", "hip_driver", "xpu_runtime", "Runtime"), "calls"),
    **dict.fromkeys(("cpu_op", "Operator"), "ops"),
    "user_annotation": "annotations",
}
PYTHON_FUNCTION: Final = "python_function"

# Some programs write numbers as text: device "0" instead of 0.
Loose = int | float | str | None
_EMPTY: Final = Raw(b"")


class HostArgs(Struct, gc=False, frozen=True):
    """The `args` of a host event. The raw texts are parsed later, once for each distinct text."""

    correlation: Loose = -1
    external: Loose = field(name="External id", default=-1)
    dims: Raw = field(name="Input Dims", default=_EMPTY)
    types: Raw = field(name="Input type", default=_EMPTY)
    concrete: Raw = field(name="Concrete Inputs", default=_EMPTY)
    kernel: Raw = _EMPTY  # of a launch call on ROCm


class Args(HostArgs, gc=False, frozen=True):
    """The `args` of a device event."""

    device: Loose = None
    stream: Loose = None
    bytes: Loose = -1
    grid: Raw = _EMPTY
    block: Raw = _EMPTY
    registers: Loose = field(name="registers per thread", default=None)
    shared: Loose = field(name="shared memory", default=None)
    collective: Raw = field(name="Collective name", default=_EMPTY)
    in_elements: Raw = field(name="In msg nelems", default=_EMPTY)
    out_elements: Raw = field(name="Out msg nelems", default=_EMPTY)
    element_type: Raw = field(name="dtype", default=_EMPTY)
    group_size: Raw = field(name="Group size", default=_EMPTY)


class Complete(Struct, tag_field="ph", tag="X", gc=False):
    """An event with a start and a duration. Times stay text until they are converted to exact nanoseconds."""

    ts: Raw = _EMPTY
    dur: int | float | None = None
    name: str = ""
    cat: str = ""
    pid: Loose = None
    tid: Loose = None
    args: Args | None = None


class Begin(Struct, tag_field="ph", tag="B", gc=False):
    """The begin of an event. It ends with the next `End` of the same thread that belongs to no later `Begin`."""

    ts: Raw = _EMPTY
    name: str = ""
    cat: str = ""
    pid: Loose = None
    tid: Loose = None
    args: Args | None = None


class End(Struct, tag_field="ph", tag="E", gc=False):
    """The end of an event."""

    ts: Raw = _EMPTY
    pid: Loose = None
    tid: Loose = None


class ByCategory(Struct, gc=False):
    """The same as `Complete`, for the decoder that selects the type by category. `cat` is an attribute of the type."""

    ph: Literal["X"]
    ts: Raw = _EMPTY
    dur: int | float | None = None
    name: str = ""
    pid: Loose = None
    tid: Loose = None


class DeviceByCategory(ByCategory, gc=False):
    """A device event."""

    args: Args | None = None


class HostByCategory(ByCategory, gc=False):
    """A host event."""

    args: HostArgs | None = None


class MemoryArgs(Struct, gc=False, frozen=True):
    """The `args` of an allocator event."""

    bytes: Loose = field(name="Bytes", default=None)
    allocated: Loose = field(name="Total Allocated", default=None)
    reserved: Loose = field(name="Total Reserved", default=None)
    device: Loose = field(name="Device Id", default=None)
    device_type: Loose = field(name="Device Type", default=None)


class Instant(Struct, tag_field="ph", tag="i", gc=False):
    """An event without a duration, such as an allocator event."""

    ts: Raw = _EMPTY
    pid: Loose = None
    tid: Loose = None
    name: str = ""
    args: MemoryArgs | None = None


class MetaArgs(Struct, gc=False, frozen=True):
    """The `args` of a metadata event."""

    name: Loose = None
    labels: Loose = None


class Meta(Struct, tag_field="ph", tag="M", gc=False):
    """The name of a process or a thread."""

    name: str = ""
    pid: Loose = None
    tid: Loose = None
    args: MetaArgs | None = None


# Events of all other phases are checked and counted; none of their fields is kept.
_OTHER_PHASES: Final = tuple(
    defstruct(f"Phase{number}", [], tag_field="ph", tag=phase, gc=False)
    for number, phase in enumerate("IbneSTpFstfPCNODVvRc,()")
)


def _by_phase() -> Any:  # noqa: ANN401 - a union built at run time
    union: Any = Complete | Instant | Meta | Begin | End
    for other in _OTHER_PHASES:
        union = union | other
    return union


DECODER: Final = msgspec.json.Decoder(list[_by_phase()])  # type: ignore[misc] # a union built at run time


class PythonFunction(Struct, tag_field="cat", tag=PYTHON_FUNCTION, gc=False):
    """A Python function; its fields are checked but not kept."""

    ph: Literal["X"]


class Flow(Struct, gc=False):
    """One end of a flow arrow."""

    ph: Literal["s", "t", "f"]


def _by_category() -> Any:  # noqa: ANN401 - a union built at run time
    union: Any = PythonFunction
    for category in (*DEVICE_CATEGORIES, *HOST_CATEGORIES):
        base = DeviceByCategory if category in DEVICE_CATEGORIES else HostByCategory
        options: Any = {"bases": (base,), "namespace": {"cat": category}, "tag_field": "cat", "tag": category}
        union |= msgspec.defstruct(category, [], gc=False, **options)
    for category in ("ac2g", "fwdbwd", "async_cpu_to_gpu", "async_gpu"):
        union |= msgspec.defstruct(category, [], bases=(Flow,), tag_field="cat", tag=category, gc=False)
    return union


_CATEGORY_DECODER: Final = msgspec.json.Decoder(list[_by_category()])  # type: ignore[misc] # as above
_PROBED_EVENTS: Final = 200  # events at the start of each chunk that are checked for a Python function
_MAX_FAILURES: Final = 8  # after this many failed chunks, trying the category decoder first costs more than it saves


class EventDecoder:
    """Decodes chunks of events. Python functions are checked and counted without decoding their fields.

    In many traces, 90 % of the events are Python functions, which the analysis does not use. `DECODER` selects the
    struct by phase and builds a full object for each of them. `_CATEGORY_DECODER` selects it by category and builds an
    empty object. It is used as soon as a Python function was seen.
    """

    def __init__(self) -> None:
        self.has_functions = False
        self._failures = 0

    def decode(self, text: bytes) -> tuple[list[Any], int]:
        """Return the events of a JSON list, and the number of Python functions left out. Raise when an event is broken."""
        if self.has_functions and self._failures < _MAX_FAILURES:
            if not text.isascii():
                text.decode()  # msgspec does not check the UTF-8 of strings that it skips
            try:
                events = _CATEGORY_DECODER.decode(text)
            except msgspec.ValidationError:  # a thread name, an instant event, a custom category
                self._failures += 1
            else:
                types = list(map(type, events))
                functions = countOf(types, PythonFunction)
                return [
                    event for event, kind in zip(events, types, strict=True) if kind is not PythonFunction
                ], functions
        events = DECODER.decode(text)
        # Searching the text for functions would take 5 % of the reading time in a trace that has none.
        self.has_functions = self.has_functions or any(
            getattr(event, "cat", "") == PYTHON_FUNCTION for event in events[:_PROBED_EVENTS]
        )
        return events, 0
