"""The kernel moves memory pages between NUMA nodes while the program runs.

## What it does
Reads `/proc/sys/kernel/numa_balancing` on machines with AMD accelerators and more than one NUMA node.

## Why it matters
Pages that the device reads are unmapped and moved behind the program's back. AMD asks to switch it off for its
accelerators.

## Example
    $ cat /proc/sys/kernel/numa_balancing
    1

## Use instead
    sudo sysctl kernel.numa_balancing=0

## When to allow it
On a machine whose host you cannot change; bind the process with numactl instead.
"""

from collections.abc import Iterator

from rocsolid.model.environment import Environment
from rocsolid.model.evidence import issue
from rocsolid.model.finding import Finding, Rule, Severity
from rocsolid.model.plan import Plan
from rocsolid.model.platform import Platform

RULE = Rule(
    code="SYS004",
    name="numa-balancing-on",
    severity=Severity.INFO,
    message="automatic NUMA balancing is on, with {nodes} NUMA nodes",
    why="The kernel unmaps and moves pages that the device uses, which costs time at random moments.",
    fix="sudo sysctl kernel.numa_balancing=0   (on the host)",
    check="cat /proc/sys/kernel/numa_balancing",
    since="0.1",
    evidence=(issue("ROCm/amdsmi#81", "AMD's tools are asked to warn about it."),),
)


def check(env: Environment, plan: Plan) -> Iterator[Finding]:  # noqa: ARG001 - the signature of a check
    """Balancing on, where it matters."""
    amd = any(device.platform is Platform.ROCM for device in env.devices)
    if amd and env.host.numa_balancing and env.host.numa_nodes > 1:
        yield RULE.found("kernel.numa_balancing", nodes=env.host.numa_nodes)
