"""Automatic NUMA balancing is on: Linux moves memory pages between NUMA nodes while the program runs.

## What it does
Reads `/proc/sys/kernel/numa_balancing` on machines with AMD GPUs and more than one NUMA node.

## Why it matters
Linux unmaps and moves memory pages while the GPU uses them. AMD recommends turning NUMA balancing off on machines
with its GPUs.

## Example
    $ cat /proc/sys/kernel/numa_balancing
    1

## Use instead
    sudo sysctl kernel.numa_balancing=0

## When to allow it
When you cannot change the host. Bind the process with numactl instead.
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
    message="Automatic NUMA balancing is on ({nodes} NUMA nodes)",
    why="Linux unmaps and moves memory pages that the GPU uses. This causes delays at random moments.",
    fix="sudo sysctl kernel.numa_balancing=0   (on the host)",
    check="cat /proc/sys/kernel/numa_balancing",
    since="0.1",
    evidence=(issue("ROCm/amdsmi#81", "Asks AMD to add a warning about it to its tools."),),
)


def check(env: Environment, plan: Plan) -> Iterator[Finding]:  # noqa: ARG001 - the signature of a check
    """NUMA balancing is on, with AMD GPUs and several NUMA nodes."""
    amd = any(device.platform is Platform.ROCM for device in env.devices)
    if amd and env.host.numa_balancing and env.host.numa_nodes > 1:
        yield RULE.found("kernel.numa_balancing", nodes=env.host.numa_nodes)
