"""What the runtimes' errors during a capture mean, and what to do about each.

An error is known by its number, by HIP's, CUDA's or the CUDA driver's name for it, or by its text; torch's own by their text.
"""

import re
from dataclasses import dataclass

from rocsolid.catalog.runtime_errors import RUNTIME_ERRORS, runtime_error
from rocsolid.model.capture_report import Reason
from rocsolid.model.evidence import Evidence, measured, source
from rocsolid.model.runtime_error import RuntimeErrorCode


@dataclass(frozen=True, kw_only=True)
class Meaning:
    """One cause, by the codes that report it or a part of torch's text."""

    cause: Reason  # as the counters name it
    says: str
    fix: str
    evidence: tuple[Evidence, ...]
    codes: tuple[int, ...] = ()
    texts: tuple[str, ...] = ()


_SEEN = source(
    "torch 2.11.0+cu130 on an H200", "Raised in a capture that did it on purpose; the texts are the runtime's."
)
_READ = source("libamdhip64 6.4.3 and 7.2.4, libcudart 13.0", "The number, name and text of the error.")
_PRETEND = measured("capture-rules-on-hip", "Which calls HIP 6.4.3 and 7.2.4 answer with it, on a pretend device.")

MEANINGS = (
    Meaning(
        texts=("unless the CPU tensor is pinned", "Cannot copy between CPU and CUDA tensors during CUDA graph capture"),
        cause=Reason.HOST_COPY,
        says="a copy between host and device was made",
        fix="make the tensor on the device before the capture, or copy from pinned memory with non_blocking=True",
        evidence=(_SEEN,),
    ),
    Meaning(
        texts=("CUDAGeneratorImpl::current_seed", "CUDAGeneratorImpl::set_current_seed", "get_rng_state", "philox"),
        cause=Reason.RANDOM_STATE,
        says="the state of random numbers was read or set on the host",
        fix="do it before the call, or register the generator with generators=(…)",
        evidence=(
            source(
                "torch 2.9 aten/src/ATen/cuda/CUDAGeneratorImpl.cpp", "Reading the seed asserts that no capture runs."
            ),
        ),
    ),
    Meaning(
        codes=(904,),
        texts=("unjoined work",),
        cause=Reason.UNJOINED,
        says="work was started on another stream that never came back",
        fix="end with torch.cuda.current_stream().wait_stream(side) on the stream that forked",
        evidence=(_READ, _PRETEND),
    ),
    Meaning(
        codes=(905,),
        cause=Reason.FOREIGN_EVENT,
        says="the function waited for work that is not part of the capture",
        fix="wait for it before the call",
        evidence=(_READ,),
    ),
    Meaning(
        codes=(906,),
        cause=Reason.LEGACY_STREAM,
        says="something ran on the default stream of the device, such as a synchronous copy",
        fix="give the library the current stream, and copy with non_blocking=True; on HIP no other thread may copy synchronously either",
        evidence=(_READ, _PRETEND),
    ),
    Meaning(
        codes=(907,),
        cause=Reason.EVENT,
        says="an event that was recorded in the capture was queried or waited for on the host",
        fix="use events recorded outside the function; a watchdog of collectives that does it is fixed by ROCm 7.2.1 or torch 2.12",
        evidence=(_READ, _PRETEND),
    ),
    Meaning(
        codes=(902,),
        cause=Reason.FOREIGN_EVENT,
        says="the function waited for a stream that another capture is recording",
        fix="capture one function at a time, and let none wait for an event of the other",
        evidence=(_READ,),
    ),
    Meaning(
        codes=(903,),
        cause=Reason.UNJOINED,
        says="the capture was ended on another stream than it began on",
        fix="leave the current stream as it was: a `with torch.cuda.stream(...)` that the function opens must be closed by it",
        evidence=(_READ,),
    ),
    Meaning(
        codes=(908,),
        texts=("not initiated in the current thread", "from a different thread"),
        cause=Reason.ANOTHER_THREAD,
        says="another thread took part in the capture",
        fix="start that thread's work outside the function",
        evidence=(_READ,),
    ),
    Meaning(
        codes=(900,),
        cause=Reason.HOST_READ,
        says="the host waited for the device, or asked the runtime for something that no graph can hold",
        fix="look for .item(), .cpu(), print(tensor), a first use of a library, or an allocation by a library",
        evidence=(_SEEN, _PRETEND),
    ),
    Meaning(
        codes=(901,),
        texts=("cudaStreamCaptureStatusInvalidated", "hipStreamCaptureStatusInvalidated"),
        cause=Reason.HOST_READ,
        says="an earlier call of the capture was refused, and its error was swallowed or came from another thread",
        fix="look for the first refused call: .item(), .cpu(), a synchronous copy, a first use of a library, an `except` around it",
        evidence=(_SEEN, _PRETEND),
    ),
    Meaning(
        codes=(401,),
        cause=Reason.UNJOINED,
        says="the stream is still in an earlier capture that could not be ended",
        fix="join the side streams of that capture, and capture on a new stream, or in a new process",
        evidence=(_READ, _PRETEND),
    ),
    Meaning(
        codes=(910,),
        cause=Reason.ERROR,
        says="a graph was to be updated with work of another shape",
        fix="instantiate the new graph instead of updating the old one",
        evidence=(_READ,),
    ),
    Meaning(
        codes=(909,),
        cause=Reason.ERROR,
        says="a wait took longer than the driver allows",
        fix="look for work on the device that never ends; it has nothing to do with the capture itself",
        evidence=(_READ,),
    ),
    Meaning(
        codes=(2,),
        texts=("OutOfMemoryError",),
        cause=Reason.MEMORY,
        says="there was not enough device memory for the graph",
        fix="capture fewer graphs (max_graphs), give them a budget (memory_budget_bytes), or capture before other memory is taken",
        evidence=(_READ,),
    ),
    Meaning(
        codes=(400,),
        cause=Reason.RUNTIME_CALL,
        says="a stream, event or handle was used that is gone, or belongs to another device",
        fix="make it outside the function and keep it as long as the graph lives",
        evidence=(_READ,),
    ),
    Meaning(
        codes=(801,),
        cause=Reason.RUNTIME_CALL,
        says="the runtime cannot do this at all, or not in a capture",
        fix="leave the call out of the function, or name its module in pieces=[…]",
        evidence=(_READ,),
    ),
    Meaning(
        codes=(700, 719, 911, 912),
        cause=Reason.ERROR,
        says="work on the device failed before or during the capture, and not because of it",
        fix="run the function eagerly with AMD_SERIALIZE_KERNEL=3 or CUDA_LAUNCH_BLOCKING=1 to see which kernel it is; the process must be started anew",
        evidence=(_READ,),
    ),
)

_NUMBER = re.compile(
    r"""(?:error|code)s?(?:_t)?[\s:=(\#'"\]]*(?:code|number)?[\s:=(\#'"]*(\d{3})\b(?!\.\d) | '\((\d{3})\)""",
    re.IGNORECASE | re.VERBOSE,
)
_VENDOR = re.compile("hip|cuda", re.IGNORECASE)


def meaning_of(text: str) -> Meaning | None:
    """What an error's text means; None when nobody has told us."""
    if said := next((meaning for meaning in MEANINGS if any(part in text for part in meaning.texts)), None):
        return said
    error = error_in(text)
    return meaning_of_code(error.number) if error else None


def meaning_of_code(number: int) -> Meaning:
    """What a code means; every code of the catalogue has a meaning."""
    return next(meaning for meaning in MEANINGS if number in meaning.codes)


def error_in(text: str) -> RuntimeErrorCode | None:
    """The runtime's error that a text names: by name, by its own words, or by number beside the word error or code."""
    for spellings in (_names, _texts):
        for error in reversed(RUNTIME_ERRORS):  # captures' own come last there; an older one may only surround them
            if any(part in text for part in spellings(error)):
                return error
    numbers = [int(first or second) for first, second in _NUMBER.findall(text)] if _VENDOR.search(text) else []
    return next((found for number in numbers if (found := runtime_error(number))), None)


def _names(error: RuntimeErrorCode) -> tuple[str, ...]:
    return (*error.names, error.driver)


def _texts(error: RuntimeErrorCode) -> tuple[str, ...]:
    return error.texts
