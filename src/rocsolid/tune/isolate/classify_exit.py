"""Classify how a trial ended, from what the supervisor observed and from what runtimes and drivers print."""

import signal
from typing import Any, Final

_DEVICE_LOST_TEXTS: Final = (
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
_DEVICE_MEMORY_TEXTS: Final = (
    "CUDA out of memory",
    "HIP out of memory",
    "hipErrorOutOfMemory",
    "torch.OutOfMemoryError",
)
_MAX_CHARS: Final = 400  # of a message


def classify_exit(
    *,
    cause: dict[str, Any] | None,
    code: int | None,
    returned: bool,
    error: dict[str, Any] | None,
    log_tail: str,
    oom_kills: int,
    phase: str,
) -> dict[str, Any]:
    """Return the kind of the TrialResult and its fields.

    `cause` is why the supervisor ended the trial, if it did; `code` is the exit code, negative for a signal; `returned` is
    whether the trial sent a value; `error` is the exception that it raised; `oom_kills` is how many
    processes the kernel killed during the trial because memory ran out.
    """
    if cause is not None:
        return {"phase": phase, **cause}
    if error is not None:
        return {"phase": phase, **_classify_exception(error)}
    if returned:
        return {"kind": "returned", "phase": phase, "clean": code == 0, "message": _describe_exit(code) if code else ""}
    if code == -signal.SIGKILL and oom_kills:
        return {
            "kind": "out of memory",
            "memory": "host",
            "phase": phase,
            "message": "the kernel killed the process (OOM killer)",
        }
    fault = next((line for line in log_tail.splitlines() if any(word in line for word in _DEVICE_LOST_TEXTS)), "")
    if fault:
        return {"kind": "device lost", "phase": phase, "message": fault[:_MAX_CHARS]}
    if code is not None and code < 0:
        return {"kind": "crashed", "phase": phase, "signal": _describe_exit(code)}
    return {"kind": "crashed", "phase": phase, "message": f"{_describe_exit(code)} without a result"}


def _classify_exception(error: dict[str, Any]) -> dict[str, Any]:
    name, text = str(error.get("type", "")), str(error.get("message", ""))
    message = f"{name}: {text}".splitlines()[0][:_MAX_CHARS] if text else name
    if name == "WrongResultError":
        return {"kind": "wrong result", "message": text[:_MAX_CHARS]}
    if any(word in text for word in _DEVICE_LOST_TEXTS):
        return {"kind": "device lost", "message": message}
    if name == "OutOfMemoryError" or any(word in text for word in _DEVICE_MEMORY_TEXTS):
        return {"kind": "out of memory", "memory": "device", "message": message}
    if name == "MemoryError":
        return {"kind": "out of memory", "memory": "host", "message": message}
    return {"kind": "raised", "message": message}


def _describe_exit(code: int | None) -> str:
    if code is None:
        return "no exit status"
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
