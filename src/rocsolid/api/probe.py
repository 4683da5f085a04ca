"""Look at this machine, and say what will hurt."""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace

from rocsolid.catalog.overrides import overridden
from rocsolid.catalog.profiles import resolve as resolve_profile
from rocsolid.model.environment import Environment, Route
from rocsolid.model.finding import Finding
from rocsolid.model.plan import Plan
from rocsolid.probe.active_checks import run_checks
from rocsolid.probe.quick_facts import surroundings
from rocsolid.probe.snapshot import Look, take
from rocsolid.rules.engine import check_environment
from rocsolid.torchapi.config.live import imported_modules


def probe(
    *,
    live: bool | None = None,
    imports: Sequence[str] = (),
    active: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> Environment:
    """Take a snapshot of machine, container, packages and effective settings.

    Args:
        live: `None` reads what this process has already imported, and the rest from torch's source. `True` asks a fresh
            interpreter in which start-up files run for real, which takes as long as importing torch's compiler.
            `False` reads the source only.
        imports: packages whose import is watched on the live route, for what they assign.
        active: also run small real computations, in processes of their own.
        progress: hears the name of each computation as it starts.

    Example:
        >>> import rocsolid as rs
        >>> env = rs.probe(live=False)
        >>> env.platform.label in ("ROCm", "CUDA", "CPU")
        True

    """
    if live or imports:
        route = Route.LIVE
    elif live is None and imported_modules():
        route = Route.PROCESS
    else:
        route = Route.STATIC
    env = take(Look(route=route, imports=imports))
    return replace(env, checks=tuple(run_checks(env, progress))) if active else env


def check(env: Environment | None = None, profile: str = "safe") -> list[Finding]:
    """What in this environment will hang, crash, falsify or slow down, worst first.

    Args:
        env: a snapshot; `None` takes one.
        profile: the profile whose values settings are held against.

    Example:
        >>> import rocsolid as rs
        >>> [f.code for f in rs.check(rs.probe(live=False)) if f.severity.name == "CRITICAL"]
        []

    """
    seen = probe() if env is None else env
    return check_environment(seen, resolve(profile, seen))


def resolve(profile: str, env: Environment | None = None) -> Plan:
    """The values a profile chooses for this environment, each with its reason.

    Args:
        profile: safe, balanced, fast or debug.
        env: a snapshot; `None` takes the few facts that a plan depends on.

    Example:
        >>> import rocsolid as rs
        >>> rs.resolve("safe", rs.probe(live=False)).get("inductor.max_autotune").value
        False

    """
    return overridden(resolve_profile(profile, surroundings() if env is None else env), os.environ)
