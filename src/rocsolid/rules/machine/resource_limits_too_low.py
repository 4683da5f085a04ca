"""A resource limit of the process or container is too low.

## What it does
Compares the size of `/dev/shm`, the stack size and the number of open files with what data loaders, collectives and the
HIP runtime need.

## Why it matters
Docker gives a container 64 MB of shared memory by default: data loaders and collectives then crash with a bus error.
HIP traverses large graphs recursively, so with a small stack the process crashes when such a graph is instantiated.

## Example
    $ docker run ... rocm/pytorch         # without --shm-size or --ipc=host

## Use instead
    docker run --ipc=host --ulimit stack=67108864 ...

## When to allow it
In a process that loads no data in parallel and captures only small graphs.
"""

from collections.abc import Iterator

from rocsolid.model.environment import Environment
from rocsolid.model.evidence import issue
from rocsolid.model.finding import Finding, Rule, Severity
from rocsolid.model.plan import Plan
from rocsolid.model.platform import Platform

_MIN_SHM_BYTES = 512 * 1024**2
_MIN_STACK_BYTES = 8 * 1024**2
_MIN_OPEN_FILES = 1024

RULE = Rule(
    code="SYS010",
    name="resource-limits-too-low",
    severity=Severity.INFO,
    message="Resource limit too low: {subject} ({value})",
    why="{reason}",
    fix="{fix}",
    check="{check}",
    since="0.1",
    evidence=(issue("ROCm/legacy-rocm-build#6602", "Instantiating a large graph overflows the stack."),),
)


def check(env: Environment, plan: Plan) -> Iterator[Finding]:  # noqa: ARG001 - the signature of a check
    """Limits that are known to be too low."""
    host = env.host
    if host.shared_memory_bytes is not None and host.shared_memory_bytes < _MIN_SHM_BYTES and env.devices:
        yield RULE.found(
            "/dev/shm",  # noqa: S108 - only read
            value=f"{host.shared_memory_bytes / 1024**2:.0f} MB free",
            reason="Data loaders and collectives use this shared memory and crash with a bus error when it is full.",
            fix="Start the container with --ipc=host or --shm-size=16g",
            check="df -h /dev/shm",
        )
    stack = host.limits.get("stack bytes")
    if env.platform is Platform.ROCM and stack is not None and stack < _MIN_STACK_BYTES:
        yield RULE.found(
            "stack",
            value=f"{stack / 1024**2:.0f} MB",
            reason="HIP traverses a graph recursively. The process crashes when a large graph is instantiated.",
            fix="ulimit -s 65536",
            check="ulimit -s",
        )
    files = host.limits.get("open files")
    if files is not None and files < _MIN_OPEN_FILES:
        yield RULE.found(
            "open files",
            value=str(files),
            reason="Compile workers and data loaders open many files and pipes.",
            fix="ulimit -n 65536",
            check="ulimit -n",
        )
