"""An AMD GPU is present, but this user may not open it.

## What it does
Checks the access rights of `/dev/kfd`.

## Why it matters
HIP then reports "no device". This looks like a driver problem, but only access rights are missing.

## Example
    $ docker run ... rocm/pytorch         # without --device=/dev/kfd --device=/dev/dri --group-add video

## Use instead
    docker run --device=/dev/kfd --device=/dev/dri --group-add video --group-add render ...

## When to allow it
When this user is not supposed to use the GPU.
"""

from collections.abc import Iterator

from rocsolid.model.environment import Environment
from rocsolid.model.evidence import source
from rocsolid.model.finding import Finding, Rule, Severity
from rocsolid.model.plan import Plan

RULE = Rule(
    code="SYS007",
    name="device-access-denied",
    severity=Severity.CRITICAL,
    message="/dev/kfd exists, but this user may not read and write it",
    why='Every HIP call will report "no device".',
    fix="Add the user to the groups render and video. In a container: --device=/dev/kfd --device=/dev/dri --group-add render",
    check="test -r /dev/kfd -a -w /dev/kfd && echo ok",
    since="0.1",
    evidence=(source("Linux amdkfd driver, /dev/kfd", "Every HIP process opens it for reading and writing."),),
)


def check(env: Environment, plan: Plan) -> Iterator[Finding]:  # noqa: ARG001 - the signature of a check
    """The device file exists but cannot be opened."""
    if env.host.kfd_access == "denied":
        yield RULE.found("/dev/kfd")
