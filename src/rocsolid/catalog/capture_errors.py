"""What HIP and CUDA errors during a capture mean, and how to fix each.

An error is recognised by its number, by its name in HIP, CUDA or the CUDA driver, or by its text. Torch's own errors are
recognised by their text.
"""

import re
from dataclasses import dataclass

from rocsolid.catalog.runtime_errors import RUNTIME_ERRORS, runtime_error
from rocsolid.model.capture_report import Reason
from rocsolid.model.evidence import Evidence, measured, source
from rocsolid.model.runtime_error import RuntimeErrorCode


@dataclass(frozen=True, kw_only=True)
class Meaning:
    """One cause, with the error codes or parts of torch's messages that report it."""

    cause: Reason  # the reason in the report
    message: str
    fix: str
    evidence: tuple[Evidence, ...]
    codes: tuple[int, ...] = ()
    texts: tuple[str, ...] = ()


_SEEN = source(
    "torch 2.11.0+cu130 on an H200",
    "Raised by captures that made this mistake on purpose; the texts are the runtime's.",
)
_READ = source("libamdhip64 6.4.3 and 7.2.4, libcudart 13.0", "The number, name and text of the error.")
_SIMULATED = measured(
    "capture-rules-on-hip", "The calls that fail with this error on HIP 6.4.3 and 7.2.4, on a simulated GPU."
)

MEANINGS = (
    Meaning(
        texts=("unless the CPU tensor is pinned", "Cannot copy between CPU and CUDA tensors during CUDA graph capture"),
        cause=Reason.HOST_COPY,
        message="data was copied between CPU and GPU",
        fix="create the tensor on the GPU before the capture, or copy from pinned memory with non_blocking=True",
        evidence=(_SEEN,),
    ),
    Meaning(
        texts=("CUDAGeneratorImpl::current_seed", "CUDAGeneratorImpl::set_current_seed", "get_rng_state", "philox"),
        cause=Reason.RNG_STATE,
        message="the random number state was read or set on the CPU",
        fix="read or set it before calling the captured function, or register the generator with generators=(…)",
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
        message="work was started on a side stream that was not joined back",
        fix="at the end of the function, on the main stream, call torch.cuda.current_stream().wait_stream(side)",
        evidence=(_READ, _SIMULATED),
    ),
    Meaning(
        codes=(905,),
        cause=Reason.UNCAPTURED_EVENT,
        message="the function waited for an event from outside the capture",
        fix="wait for the event before calling the captured function",
        evidence=(_READ,),
    ),
    Meaning(
        codes=(906,),
        cause=Reason.DEFAULT_STREAM,
        message="work ran on the default stream of the GPU, such as a synchronous copy",
        fix="pass the current stream to the library, and copy with non_blocking=True; on HIP other threads must not copy synchronously either",
        evidence=(_READ, _SIMULATED),
    ),
    Meaning(
        codes=(907,),
        cause=Reason.EVENT_QUERIED,
        message="an event recorded during the capture was queried or waited for on the CPU",
        fix="use events recorded outside the function; if the NCCL/RCCL watchdog thread queries it, upgrade to ROCm 7.2.1 or torch 2.12",
        evidence=(_READ, _SIMULATED),
    ),
    Meaning(
        codes=(902,),
        cause=Reason.UNCAPTURED_EVENT,
        message="the function waited for a stream that another capture is recording",
        fix="capture one function at a time, and do not let one wait for an event of the other",
        evidence=(_READ,),
    ),
    Meaning(
        codes=(903,),
        cause=Reason.UNJOINED,
        message="the capture was ended on a different stream than it began on",
        fix="restore the current stream: leave every `with torch.cuda.stream(...)` block that the function enters",
        evidence=(_READ,),
    ),
    Meaning(
        codes=(908,),
        texts=("not initiated in the current thread", "from a different thread"),
        cause=Reason.ANOTHER_THREAD,
        message="another thread took part in the capture",
        fix="start that thread's work outside the function",
        evidence=(_READ,),
    ),
    Meaning(
        codes=(900,),
        cause=Reason.HOST_SYNC,
        message="the CPU waited for the GPU, or called something that a graph cannot contain",
        fix="look for .item(), .cpu(), print(tensor), the first use of a library, or an allocation by a library",
        evidence=(_SEEN, _SIMULATED),
    ),
    Meaning(
        codes=(901,),
        texts=("cudaStreamCaptureStatusInvalidated", "hipStreamCaptureStatusInvalidated"),
        cause=Reason.HOST_SYNC,
        message="an earlier call during the capture failed, and its error was caught or came from another thread",
        fix="look for the first call that failed: .item(), .cpu(), a synchronous copy, the first use of a library, or an `except` that hides the error",
        evidence=(_SEEN, _SIMULATED),
    ),
    Meaning(
        codes=(401,),
        cause=Reason.UNJOINED,
        message="the stream is still in an earlier capture that could not be ended",
        fix="join the side streams of that capture; then capture on a new stream or in a new process",
        evidence=(_READ, _SIMULATED),
    ),
    Meaning(
        codes=(910,),
        cause=Reason.ERROR,
        message="a graph was updated with work of a different structure",
        fix="instantiate the new graph instead of updating the existing one",
        evidence=(_READ,),
    ),
    Meaning(
        codes=(909,),
        cause=Reason.ERROR,
        message="a wait took longer than the driver allows",
        fix="look for GPU work that never ends; the capture itself is not the cause",
        evidence=(_READ,),
    ),
    Meaning(
        codes=(2,),
        texts=("OutOfMemoryError",),
        cause=Reason.OUT_OF_MEMORY,
        message="there was not enough GPU memory for the graph",
        fix="capture fewer graphs (max_graphs=), set a budget (memory_budget_bytes=), or capture before other memory is allocated",
        evidence=(_READ,),
    ),
    Meaning(
        codes=(400,),
        cause=Reason.RUNTIME_CALL,
        message="a stream, event or handle was used that was destroyed or belongs to another GPU",
        fix="create it outside the function, and keep it alive as long as the graph",
        evidence=(_READ,),
    ),
    Meaning(
        codes=(801,),
        cause=Reason.RUNTIME_CALL,
        message="the runtime does not support this call, at least not during a capture",
        fix='remove the call from the function, or name its module in eager_modules=["..."]',
        evidence=(_READ,),
    ),
    Meaning(
        codes=(700, 719, 911, 912),
        cause=Reason.ERROR,
        message="GPU work failed before or during the capture, not because of it",
        fix="run the function in eager with AMD_SERIALIZE_KERNEL=3 or CUDA_LAUNCH_BLOCKING=1 to find the kernel; restart the process",
        evidence=(_READ,),
    ),
)

_ERROR_NUMBER = re.compile(
    r"""(?:error|code)s?(?:_t)?[\s:=(\#'"\]]*(?:code|number)?[\s:=(\#'"]*(\d{3})\b(?!\.\d) | '\((\d{3})\)""",
    re.IGNORECASE | re.VERBOSE,
)
_VENDOR = re.compile("hip|cuda", re.IGNORECASE)


def meaning_of(text: str) -> Meaning | None:
    """Return what an error message means; None when it is not known."""
    for meaning in MEANINGS:
        if any(part in text for part in meaning.texts):
            return meaning
    error = error_in(text)
    return meaning_of_code(error.number) if error else None


def meaning_of_code(number: int) -> Meaning:
    """Return what an error code means; every code of the catalogue has a meaning."""
    return next(meaning for meaning in MEANINGS if number in meaning.codes)


def error_in(text: str) -> RuntimeErrorCode | None:
    """Return the runtime error in a message, found by name, by text, or by a number next to the word error or code."""
    for spellings in (_names, _texts):
        # From the end, where the capture errors are: a message may also name a more general error around them.
        for error in reversed(RUNTIME_ERRORS):
            if any(part in text for part in spellings(error)):
                return error
    numbers = [int(first or second) for first, second in _ERROR_NUMBER.findall(text)] if _VENDOR.search(text) else []
    return next((found for number in numbers if (found := runtime_error(number))), None)


def _names(error: RuntimeErrorCode) -> tuple[str, ...]:
    return (*error.names, error.driver_name)


def _texts(error: RuntimeErrorCode) -> tuple[str, ...]:
    return error.texts
