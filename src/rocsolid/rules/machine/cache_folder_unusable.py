"""A folder for compiled code cannot be written, or its disk is nearly full.

## What it does
Looks at the folders in which Inductor, Triton and MIOpen keep what they compiled.

## Why it matters
Without a cache every start compiles everything again; on a full disk the compile itself fails, half way and with an error
about something else.

## Example
    OSError: [Errno 28] No space left on device: '/tmp/torchinductor_root/...'

## Use instead
    export TORCHINDUCTOR_CACHE_DIR=/big/disk/inductor

## When to allow it
When nothing is compiled here.
"""

from collections.abc import Iterator

from rocsolid.model.environment import Environment
from rocsolid.model.finding import Finding, Rule, Severity
from rocsolid.model.plan import Plan

_LEAST_BYTES = 1024**3

RULE = Rule(
    code="SYS009",
    name="cache-folder-unusable",
    severity=Severity.WARNING,
    message="the {subject} cache {folder} {state}",
    why="Every start compiles everything again, and a compile that runs out of disk fails with an unrelated error.",
    fix="free some room, or move the cache: export {variable}=/path/with/room",
    check="df -h {folder}",
    since="0.1",
)

_VARIABLES = {
    "inductor": "TORCHINDUCTOR_CACHE_DIR",
    "triton": "TRITON_CACHE_DIR",
    "miopen": "MIOPEN_CUSTOM_CACHE_DIR",
    "miopen user db": "MIOPEN_USER_DB_PATH",
}


def check(env: Environment, plan: Plan) -> Iterator[Finding]:  # noqa: ARG001 - the signature of a check
    """Caches that cannot be written or have less than a gigabyte left."""
    for cache in env.caches if env.torch else ():
        if not cache.writable:
            state = "cannot be written by this user"
        elif cache.free_bytes is not None and cache.free_bytes < _LEAST_BYTES:
            state = f"has {cache.free_bytes / 1024**2:.0f} MB left"
        else:
            continue
        yield RULE.found(cache.name, folder=cache.folder, state=state, variable=_VARIABLES[cache.name])
