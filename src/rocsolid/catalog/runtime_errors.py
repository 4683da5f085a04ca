"""The HIP and CUDA error codes that a capture can fail with, read from the libraries.

HIP's names and texts are from libamdhip64 6.4.3 and 7.2.4, CUDA's from libcudart 13.0. Both can be read without a GPU.
"""

from functools import cache

from rocsolid.model.runtime_error import RuntimeErrorCode


def _shared_error(number: int, name: str, text: str, difference: str = "") -> RuntimeErrorCode:
    """Return an error that has the same name in HIP and CUDA, apart from the prefix."""
    return RuntimeErrorCode(
        number=number, hip=f"hipError{name}", cuda=f"cudaError{name}", text=text, difference=difference
    )


RUNTIME_ERRORS: tuple[RuntimeErrorCode, ...] = (
    RuntimeErrorCode(number=2, hip="hipErrorOutOfMemory", cuda="cudaErrorMemoryAllocation", text="out of memory"),
    RuntimeErrorCode(
        number=400,
        hip="hipErrorInvalidHandle",
        cuda="cudaErrorInvalidResourceHandle",
        text="invalid resource handle",
    ),
    _shared_error(
        401,
        "IllegalState",
        "the operation cannot be performed in the present state",
        "HIP reports it when a capture begins on a stream that is already capturing (also after a capture with unjoined work), and when a capture is ended on the wrong stream. CUDA has a separate error for the wrong stream: 903.",
    ),
    _shared_error(700, "IllegalAddress", "an illegal memory access was encountered"),
    _shared_error(719, "LaunchFailure", "unspecified launch failure"),
    _shared_error(801, "NotSupported", "operation not supported"),
    _shared_error(
        900,
        "StreamCaptureUnsupported",
        "operation not permitted when stream is capturing",
        "HIP 6.4.3 accepts hipStreamAddCallback, and hipEventQuery of an event that was recorded before the capture; 7.2.4 refuses both, like CUDA.",
    ),
    _shared_error(
        901,
        "StreamCaptureInvalidated",
        "operation failed due to a previous error during capture",
        "After ending the capture has failed, HIP 6.4.3 and 7.2.4 still report the stream as invalidated, and CUDA does not. The next capture on the stream works on both.",
    ),
    _shared_error(902, "StreamCaptureMerge", "operation would result in a merge of separate capture sequences"),
    _shared_error(903, "StreamCaptureUnmatched", "capture was not ended in the same stream as it began"),
    _shared_error(
        904,
        "StreamCaptureUnjoined",
        "capturing stream has unjoined work",
        "On HIP 6.4.3 and 7.2.4 the stream keeps capturing: the next capture on it fails with 401, and a stream that waits for it becomes part of the failed capture. The process crashes when it reads the returned graph, or when it ends the capture again in relaxed mode. CUDA ends the capture.",
    ),
    _shared_error(
        905,
        "StreamCaptureIsolation",
        "dependency created on uncaptured work in another stream",
        "CUDA reports it when the capturing stream waits for an event from outside the capture. HIP 6.4.3 and 7.2.4 accept that wait, but the graph does not contain it.",
    ),
    _shared_error(
        906,
        "StreamCaptureImplicit",
        "operation would make the legacy stream depend on a capturing blocking stream",
        "CUDA documents it for blocking streams; HIP 6.4.3 and 7.2.4 report it for every synchronous copy or fill, from any thread, in every mode, also with non-blocking streams.",
    ),
    _shared_error(907, "CapturedEvent", "operation not permitted on an event last recorded in a capturing stream"),
    _shared_error(
        908, "StreamCaptureWrongThread", "attempt to terminate a thread-local capture sequence from another thread"
    ),
    RuntimeErrorCode(
        number=909,
        hip="",
        cuda="cudaErrorTimeout",
        text="wait operation timed out",
        difference="HIP has no such error.",
    ),
    _shared_error(
        910,
        "GraphExecUpdateFailure",
        "the graph update was not performed because it included changes which violated constraints specific to instantiated graph update",
    ),
    RuntimeErrorCode(
        number=911,
        hip="hipErrorInvalidChannelDescriptor",
        cuda="cudaErrorExternalDevice",
        text="an async error has occured in external entity outside of CUDA",
        hip_text="invalid resource description of texture passed to the api",
        difference="One number, two errors: in HIP 7.2.4 it is about a texture description; HIP 6.4.3 has no such error.",
    ),
    RuntimeErrorCode(
        number=912,
        hip="hipErrorInvalidTexture",
        cuda="cudaErrorInvalidClusterSize",
        text="a kernel launch error has occurred due to cluster misconfiguration",
        hip_text="invalid texture object passed to the api",
        difference="One number, two errors: in HIP 7.2.4 it is about a texture; HIP 6.4.3 has no such error.",
    ),
)


@cache
def _by_number() -> dict[int, RuntimeErrorCode]:
    return {error.number: error for error in RUNTIME_ERRORS}


def runtime_error(number: int) -> RuntimeErrorCode | None:
    """Return the error with this number; None when no capture is known to fail with it."""
    return _by_number().get(number)


def error_named(name: str) -> RuntimeErrorCode | None:
    """Return the error with this number, HIP name or CUDA name; None when there is none."""
    return next((error for error in RUNTIME_ERRORS if name in (str(error.number), *error.names)), None)
