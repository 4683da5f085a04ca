"""A compile cache folder is not writable, or its disk is almost full.

## What it does
Checks the folders where Inductor, Triton and MIOpen store compiled code.

## Why it matters
Without a cache, every start compiles everything again. On a full disk the compile itself fails halfway, often with an
error that does not mention the disk.

## Example
    OSError: [Errno 28] No space left on device: '/tmp/torchinductor_root/...'

## Use instead
    export TORCHINDUCTOR_CACHE_DIR=/big/disk/inductor

## When to allow it
When nothing is compiled on this machine.
"""

from collections.abc import Iterator

from rocsolid.catalog import cache_folders
from rocsolid.model.environment import Environment
from rocsolid.model.finding import Finding, Rule, Severity
from rocsolid.model.plan import Plan

_MIN_FREE_BYTES = 1024**3

RULE = Rule(
    code="SYS009",
    name="cache-folder-unusable",
    severity=Severity.WARNING,
    message="The {subject} cache folder {folder} {state}",
    why="Every start compiles everything again. A compile that runs out of disk space often fails with an error that does not mention the disk.",
    fix="Free disk space, or move the cache: export {variable}=/path/with/space",
    check="df -h {folder}",
    since="0.1",
)


def check(env: Environment, plan: Plan) -> Iterator[Finding]:  # noqa: ARG001 - the signature of a check
    """Caches that cannot be written or have less than 1 GB left."""
    for cache in env.caches if env.torch else ():
        if not cache.writable:
            state = "is not writable by this user"
        elif cache.free_bytes is not None and cache.free_bytes < _MIN_FREE_BYTES:
            state = f"has {cache.free_bytes / 1024**2:.0f} MB left"
        else:
            continue
        yield RULE.found(cache.name, folder=cache.folder, state=state, variable=cache_folders.VARIABLES[cache.name])
