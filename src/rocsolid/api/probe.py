"""Probe this machine, check it against the rules, and resolve a profile for it."""

import os
from collections.abc import Sequence
from dataclasses import replace

from rocsolid.catalog.overrides import apply_overrides
from rocsolid.catalog.profiles import resolve as resolve_profile
from rocsolid.errors import require_type
from rocsolid.model.environment import Environment, ProbeMode
from rocsolid.model.finding import Finding
from rocsolid.model.plan import Plan
from rocsolid.model.progress import OnStep, Step
from rocsolid.probe.active_checks import run_checks
from rocsolid.probe.quick_facts import quick_environment
from rocsolid.probe.snapshot import ProbeOptions, take_snapshot
from rocsolid.report.progress import steps_for
from rocsolid.rules.engine import check_environment
from rocsolid.torchapi.config.live import imported_modules


def probe(
    *,
    live: bool | None = None,
    imports: Sequence[str] = (),
    active: bool = False,
    progress: bool | OnStep = False,
) -> Environment:
    """Take a snapshot of the machine, the container, the packages and the settings in effect.

    Args:
        live: how to read the settings. `None`: in this process if it has imported torch's compiler, otherwise from
            torch's source. `True`: in a fresh interpreter that runs start-up files and imports torch's compiler,
            which takes several seconds. `False`: from torch's source only.
        imports: packages to import in that interpreter, to find the settings that they assign (implies `live=True`).
        active: also run the active checks: small real computations, each in a child process with a deadline.
        progress: True shows on stderr which active check runs; a function is called with each `rs.Step`.

    Example:
        >>> import rocsolid as rs
        >>> env = rs.probe(live=False)
        >>> env.platform.label in ("ROCm", "CUDA", "CPU")
        True

    """
    if live or imports:
        mode = ProbeMode.LIVE
    elif live is None and imported_modules():
        mode = ProbeMode.THIS_PROCESS
    else:
        mode = ProbeMode.STATIC
    env = take_snapshot(ProbeOptions(mode=mode, imports=imports))
    if not active:
        return env
    with steps_for(progress) as on_step:
        return replace(env, active_checks=tuple(run_checks(env, lambda name: on_step(Step(what=f"running {name}")))))


def check(env: Environment | None = None, profile: str = "safe") -> list[Finding]:
    """Return the findings about this environment, worst first: what will hang, crash, slow down or give wrong results.

    Args:
        env: a snapshot; `None` takes a new one.
        profile: the profile that the settings are compared with.

    Example:
        >>> import rocsolid as rs
        >>> [f.code for f in rs.check(rs.probe(live=False)) if f.severity.name == "CRITICAL"]
        []

    """
    snapshot = probe() if env is None else env
    require_type("rs.check: env", snapshot, Environment, "a snapshot from rs.probe()")
    return check_environment(snapshot, resolve(profile, snapshot))


def resolve(profile: str, env: Environment | None = None) -> Plan:
    """Return the plan of a profile for this environment: the values that it chooses, each with its reason.

    Args:
        profile: safe, balanced, fast or debug.
        env: a snapshot; `None` reads only the few facts that a plan depends on.

    Example:
        >>> import rocsolid as rs
        >>> rs.resolve("safe", rs.probe(live=False)).get("inductor.max_autotune").value
        False

    """
    return apply_overrides(resolve_profile(profile, quick_environment() if env is None else env), os.environ)
