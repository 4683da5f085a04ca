"""From what a nanny saw to a name for it. The words are those that runtimes and drivers print."""

import signal
from typing import Any, Final

_DEVICE_LOST: Final = (
    "Memory access fault by GPU",
    "HSA_STATUS_ERROR",
    "HW Exception by GPU",
    "GPU core dump",
    "illegal memory access",
    "hipErrorIllegalAddress",
    "hipErrorLaunchFailure",
    "unspecified launch failure",
    "device-side assert",
    "misaligned address",
    "uncorrectable ECC",
    "GPU is lost",
    "fallen off the bus",
)
_DEVICE_MEMORY: Final = ("CUDA out of memory", "HIP out of memory", "hipErrorOutOfMemory", "torch.OutOfMemoryError")
_LONGEST: Final = 400


def judge(
    *,
    cause: dict[str, Any] | None,
    code: int | None,
    answer: dict[str, Any] | None,
    error: dict[str, Any] | None,
    tail: str,
    kernel_kills: int,
    phase: str,
) -> dict[str, Any]:
    """The ending's kind and its fields.

    `cause` is why the nanny ended it, if it did; `code` the exit code, negative for a signal; `error` what the trial raised.
    """
    if cause is not None:
        return {"phase": phase, **cause}
    if error is not None:
        return {"phase": phase, **_raised(error)}
    if answer is not None:
        return {"kind": "answered", "phase": phase, "clean": code == 0, "says": _exit(code) if code else ""}
    if code == -signal.SIGKILL and kernel_kills:
        return {"kind": "out of memory", "memory": "host", "phase": phase, "says": "the kernel ended the process"}
    said = next((line for line in tail.splitlines() if any(word in line for word in _DEVICE_LOST)), "")
    if said:
        return {"kind": "device lost", "phase": phase, "says": said[:_LONGEST]}
    if code is not None and code < 0:
        return {"kind": "crashed", "phase": phase, "signal": _exit(code)}
    return {"kind": "crashed", "phase": phase, "says": f"{_exit(code)} without an answer"}


def _raised(error: dict[str, Any]) -> dict[str, Any]:
    name, text = str(error.get("type", "")), str(error.get("says", ""))
    says = f"{name}: {text}".splitlines()[0][:_LONGEST] if text else name
    if name == "WrongAnswerError":
        return {"kind": "wrong result", "says": text[:_LONGEST]}
    if any(word in text for word in _DEVICE_LOST):
        return {"kind": "device lost", "says": says}
    if name == "OutOfMemoryError" or any(word in text for word in _DEVICE_MEMORY):
        return {"kind": "out of memory", "memory": "device", "says": says}
    if name == "MemoryError":
        return {"kind": "out of memory", "memory": "host", "says": says}
    return {"kind": "refused", "says": says}


def _exit(code: int | None) -> str:
    if code is None:
        return "no exit status"
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
