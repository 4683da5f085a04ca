"""The HIP and CUDA error codes that a capture can fail with, read from the libraries.

HIP's names and texts are from libamdhip64 6.4.3 and 7.2.4, CUDA's from libcudart 13.0. Both can be read without a GPU.
"""

from functools import cache

from rocsolid.model.runtime_error import RuntimeErrorCode


def _same(number: int, name: str, text: str, differs: str = "") -> RuntimeErrorCode:
    return RuntimeErrorCode(number=number, hip=f"hipError{name}", cuda=f"cudaError{name}", text=text, differs=differs)


RUNTIME_ERRORS: tuple[RuntimeErrorCode, ...] = (
    RuntimeErrorCode(number=2, hip="hipErrorOutOfMemory", cuda="cudaErrorMemoryAllocation", text="out of memory"),
    RuntimeErrorCode(
        number=400,
        hip="hipErrorInvalidHandle",
        cuda="cudaErrorInvalidResourceHandle",
        text="invalid resource handle",
    ),
    _same(
        401,
        "IllegalState",
        "the operation cannot be performed in the present state",
        "HIP reports it where CUDA has separate errors: for a capture on a stream that is already capturing (also after a capture with unjoined work), and for an end on the wrong stream (CUDA: 903).",
    ),
    _same(700, "IllegalAddress", "an illegal memory access was encountered"),
    _same(719, "LaunchFailure", "unspecified launch failure"),
    _same(801, "NotSupported", "operation not supported"),
    _same(
        900,
        "StreamCaptureUnsupported",
        "operation not permitted when stream is capturing",
        "HIP 6.4.3 allows hipEventQuery of an old event and hipStreamAddCallback; 7.2.4 refuses both, like CUDA.",
    ),
    _same(
        901,
        "StreamCaptureInvalidated",
        "operation failed due to a previous error during capture",
        "After the failed end HIP 6.4.3 and 7.2.4 still report the stream as invalidated, CUDA resets it; the next capture on it works on both.",
    ),
    _same(902, "StreamCaptureMerge", "operation would result in a merge of separate capture sequences"),
    _same(903, "StreamCaptureUnmatched", "capture was not ended in the same stream as it began"),
    _same(
        904,
        "StreamCaptureUnjoined",
        "capturing stream has unjoined work",
        "HIP 6.4.3 and 7.2.4 leave the stream capturing: the next capture on it fails with 401, a stream that waits for it joins the dead capture, and reading the returned graph crashes the process, as does a second end in relaxed mode. CUDA ends the capture.",
    ),
    _same(
        905,
        "StreamCaptureIsolation",
        "dependency created on uncaptured work in another stream",
        "CUDA reports it for a wait for an event from outside the capture; HIP 6.4.3 and 7.2.4 accept that wait, but the graph does not contain it.",
    ),
    _same(
        906,
        "StreamCaptureImplicit",
        "operation would make the legacy stream depend on a capturing blocking stream",
        "CUDA documents it for blocking streams; HIP 6.4.3 and 7.2.4 report it for every synchronous copy or fill, from any thread, in every mode, also with non-blocking streams.",
    ),
    _same(907, "CapturedEvent", "operation not permitted on an event last recorded in a capturing stream"),
    _same(908, "StreamCaptureWrongThread", "attempt to terminate a thread-local capture sequence from another thread"),
    RuntimeErrorCode(
        number=909, hip="", cuda="cudaErrorTimeout", text="wait operation timed out", differs="HIP has no such error."
    ),
    _same(
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
        differs="One number, two errors: HIP 7.2.4 means a texture description; 6.4.3 has no such error.",
    ),
    RuntimeErrorCode(
        number=912,
        hip="hipErrorInvalidTexture",
        cuda="cudaErrorInvalidClusterSize",
        text="a kernel launch error has occurred due to cluster misconfiguration",
        hip_text="invalid texture object passed to the api",
        differs="One number, two errors: HIP 7.2.4 means a texture; 6.4.3 has no such error.",
    ),
)


@cache
def _by_number() -> dict[int, RuntimeErrorCode]:
    return {error.number: error for error in RUNTIME_ERRORS}


def runtime_error(number: int) -> RuntimeErrorCode | None:
    """The error with this number; None when no capture is known to fail with it."""
    return _by_number().get(number)


def error_named(name: str) -> RuntimeErrorCode | None:
    """An error by its number, or by its HIP or CUDA name."""
    return next((error for error in RUNTIME_ERRORS if name in (str(error.number), *error.names)), None)
