"""What the runtimes' errors during a capture mean, and what to do about each."""

from dataclasses import dataclass

from rocsolid.model.capture import Reason
from rocsolid.model.evidence import Evidence, source


@dataclass(frozen=True, kw_only=True)
class Meaning:
    """One error, by a part of its text."""

    texts: tuple[str, ...]
    cause: Reason  # as the counters name it
    says: str
    cure: str
    evidence: tuple[Evidence, ...]


_SEEN = source(
    "torch 2.11.0+cu130 on an H200", "Raised in a capture that did it on purpose; the texts are the runtime's."
)
_READ = source("CUDA and HIP runtime headers", "The text of the error code.")

MEANINGS = (
    Meaning(
        texts=("unless the CPU tensor is pinned", "Cannot copy between CPU and CUDA tensors during CUDA graph capture"),
        cause=Reason.HOST_COPY,
        says="a copy between host and device was made",
        cure="make the tensor on the device before the capture, or copy from pinned memory with non_blocking=True",
        evidence=(_SEEN,),
    ),
    Meaning(
        texts=("CUDAGeneratorImpl::current_seed", "CUDAGeneratorImpl::set_current_seed", "get_rng_state", "philox"),
        cause=Reason.RANDOM_STATE,
        says="the state of random numbers was read or set on the host",
        cure="do it before the call, or register the generator with generators=(…)",
        evidence=(
            source(
                "torch 2.9 aten/src/ATen/cuda/CUDAGeneratorImpl.cpp", "Reading the seed asserts that no capture runs."
            ),
        ),
    ),
    Meaning(
        texts=("unjoined work", "cudaErrorStreamCaptureUnjoined", "hipErrorStreamCaptureUnjoined"),
        cause=Reason.UNJOINED,
        says="work was started on another stream that never came back",
        cure="end with torch.cuda.current_stream().wait_stream(side) on the stream that forked",
        evidence=(_READ,),
    ),
    Meaning(
        texts=(
            "cudaErrorStreamCaptureIsolation",
            "hipErrorStreamCaptureIsolation",
            "dependency created on uncaptured work",
        ),
        cause=Reason.FOREIGN_EVENT,
        says="the function waited for work that is not part of the capture",
        cure="wait for it before the call",
        evidence=(_READ,),
    ),
    Meaning(
        texts=("cudaErrorStreamCaptureImplicit", "would make the legacy stream depend on a capturing blocking stream"),
        cause=Reason.LEGACY_STREAM,
        says="something ran on the default stream of the device",
        cure="give the library the current stream",
        evidence=(_READ,),
    ),
    Meaning(
        texts=("cudaErrorStreamCaptureWrongThread", "not initiated in the current thread", "from a different thread"),
        cause=Reason.ANOTHER_THREAD,
        says="another thread took part in the capture",
        cure="start that thread's work outside the function",
        evidence=(_READ,),
    ),
    Meaning(
        texts=(
            "operation not permitted when stream is capturing",
            "cudaErrorStreamCaptureUnsupported",
            "hipErrorStreamCaptureUnsupported",
            "operation failed due to a previous error during capture",
            "cudaErrorStreamCaptureInvalidated",
            "hipErrorStreamCaptureInvalidated",
        ),
        cause=Reason.HOST_READ,
        says="the host waited for the device, or asked the runtime for something that no graph can hold",
        cure="look for .item(), .cpu(), print(tensor), a first use of a library, or an allocation by a library",
        evidence=(_SEEN,),
    ),
    Meaning(
        texts=("out of memory", "OutOfMemoryError"),
        cause=Reason.MEMORY,
        says="there was not enough device memory for the graph",
        cure="capture fewer graphs (max_graphs), give them a budget (memory_budget_bytes), or capture before other memory is taken",
        evidence=(_READ,),
    ),
)


def meaning_of(text: str) -> Meaning | None:
    """What an error's text means; None when nobody has told us."""
    return next((meaning for meaning in MEANINGS if any(part in text for part in meaning.texts)), None)
