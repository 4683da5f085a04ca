"""`rs.apply`, `rs.compile` and `rs.guard`: settings of a profile or plan for a block, a function or the process."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from rocsolid.catalog.overrides import apply_overrides
from rocsolid.catalog.plan_check import check_plan
from rocsolid.catalog.profiles import resolve as resolve_profile
from rocsolid.errors import PlanError, UsageError, require_number, require_type
from rocsolid.model.environment import CheckResult, CheckStatus, Environment
from rocsolid.model.log import log as _log
from rocsolid.model.plan import Plan, Tuned
from rocsolid.model.platform import Platform
from rocsolid.probe.quick_facts import quick_environment
from rocsolid.process.run_command import Command, run_with_deadline
from rocsolid.runtime.applied_plan import Applied
from rocsolid.runtime.compile_in_child import try_in_child
from rocsolid.runtime.compiled import compile_with_plan
from rocsolid.runtime.guard import Guard

_CHILD_DEADLINE_S = 900.0


def apply(plan: Plan | str | Path, *, ignore_platform: bool = False) -> Applied:
    """Apply a plan's values: `with rs.apply(plan):` for a block, `rs.apply(plan).keep()` for the process.

    The values hold in every thread. `print` the result to see what happened to each value: set, already set, or why it is not set.

    Args:
        plan: a plan from `rs.resolve`, the name of a profile, or the path of a plan file.
        ignore_platform: also accept a plan that was made for another platform or tuned on another GPU.

    Example:
        >>> import rocsolid as rs
        >>> with rs.apply("safe") as applied:
        ...     applied.plan.profile
        'safe'

    """
    env = quick_environment()
    if isinstance(plan, str) and not plan.endswith(".toml"):
        plan = resolve_profile(plan, env)
    return Applied(plan=check_plan_fits(_loaded(plan, "rs.apply: plan"), env, ignore_platform=ignore_platform))


def compile(  # noqa: A001 - the public name is torch's
    model: Any = None,
    *,
    profile: str = "safe",
    plan: Plan | str | Path | None = None,
    deadline_s: float | None = None,
    max_recompiles: int | None = None,
    in_child: bool = False,
    mode: str | None = None,
    options: Mapping[str, object] | None = None,
    **kwargs: Any,
) -> Any:
    """Call `torch.compile` with a plan that is attached to the function, so that it holds in every thread that compiles it.

    Your `mode` and `options` override the profile, except for values that the profile insists on for this platform. Refused values are
    logged and listed in `fn.rocsolid.interventions`. It can be used as a decorator.

    Args:
        model: a module, function or method.
        profile: the profile to use when no plan is given.
        plan: a plan, or the path of a plan file.
        deadline_s: a compile that takes longer than this is cancelled, the stack of the compile is logged, and the function runs in eager.
        max_recompiles: how often the function may be compiled again; the next recompile raises `RecompileError`, which names the Dynamo
            guard that failed and the argument that changed.
        in_child: compile once in a child process first; if that hangs or crashes in native code, the function runs in eager.
        mode: as for torch.compile.
        options: as for torch.compile; here both `mode` and `options` may be given.
        kwargs: passed to torch.compile.

    Example:
        >>> import rocsolid as rs, torch
        >>> double = rs.compile(lambda x: x * 2, max_recompiles=2)
        >>> double(torch.ones(2)).tolist()
        [2.0, 2.0]

    """
    if model is None:
        return partial(
            compile,
            profile=profile,
            plan=plan,
            deadline_s=deadline_s,
            max_recompiles=max_recompiles,
            in_child=in_child,
            mode=mode,
            options=options,
            **kwargs,
        )
    if not callable(model):
        msg = f"rs.compile needs a function or a module; got {type(model).__name__}"
        raise UsageError(msg)
    require_number("rs.compile: deadline_s", deadline_s)
    require_number("rs.compile: max_recompiles", max_recompiles)
    env = quick_environment()
    return compile_with_plan(
        select_plan(profile, plan, env),
        model,
        mode=mode,
        options=options,
        deadline_s=deadline_s,
        max_recompiles=max_recompiles,
        trial=_trial(deadline_s or _CHILD_DEADLINE_S) if in_child else None,
        **kwargs,
    )


def guard(profile: str = "safe", *, plan: Plan | str | Path | None = None, deadline_s: float | None = None) -> Guard:
    """Make every `torch.compile` safe: `with rs.guard():` for a block, `rs.guard().keep()` for the process.

    On ROCm the values that the profile insists on are enforced: a different value is refused, however and in whichever thread it is
    requested. On CUDA and CPU no value is changed. `guard.interventions` lists the refused values and the lines that requested them.

    Args:
        profile: the profile to enforce.
        plan: a plan, or the path of a plan file, instead of a profile.
        deadline_s: on all platforms, a compile that takes longer than this is cancelled, and the function runs in eager.

    Example:
        >>> import rocsolid as rs
        >>> with rs.guard() as guard:
        ...     guard.interventions
        ()

    """
    require_number("rs.guard: deadline_s", deadline_s)
    env = quick_environment()
    return Guard(enforced_part(select_plan(profile, plan, env), env), deadline_s=deadline_s)


def enforced_part(plan: Plan, env: Environment) -> Plan | None:
    """Return the part of a plan that the guard enforces: on ROCm the whole plan, on CUDA and CPU only `ROCSOLID_<SETTING>` variables."""
    if env.platform is Platform.ROCM:
        return plan
    from_variables = tuple(d for d in plan if d.profile == "variable")
    return replace(plan, decisions=from_variables) if from_variables else None


def select_plan(
    profile: str, plan: Plan | str | Path | None, env: Environment, *, ignore_platform: bool = False
) -> Plan:
    """Return the given plan, or the profile's plan; `ROCSOLID_<SETTING>` variables override its values."""
    if plan is None:
        chosen = resolve_profile(profile, env)
    else:
        chosen = check_plan_fits(_loaded(plan, "plan"), env, ignore_platform=ignore_platform)
    return apply_overrides(chosen, os.environ)


def _loaded(plan: Plan | str | Path, where: str) -> Plan:
    require_type(where, plan, (Plan, str, Path), "a plan, or the path of a plan file")
    return plan if isinstance(plan, Plan) else check_plan(Plan.load(plan), str(plan))


def check_plan_fits(plan: Plan, env: Environment, *, ignore_platform: bool = False) -> Plan:
    """Return the plan if it was made for this platform or `ignore_platform` is set; raise PlanError otherwise.

    For a plan that was tuned on another chip, the plan of profile safe is returned. A plan with a setting that is not in the
    catalogue, or with a value that could load code, is refused on every platform.
    """
    check_plan(plan)
    if plan.platform is not env.platform and not ignore_platform:
        msg = (
            f"the plan was made for {plan.platform.label}, but this machine has {env.platform.label}.\n"
            "fix: make a plan here (rs.resolve, rocsolid tune), or use it anyway with ignore_platform=True (--ignore-platform)"
        )
        raise PlanError(msg)
    if plan.tuned is None or ignore_platform:
        return plan
    return _check_tuned_plan(plan, plan.tuned, env)


def _check_tuned_plan(plan: Plan, tuned: Tuned, env: Environment) -> Plan:
    """Return the plan if it was tuned on a chip of this machine, otherwise the plan of profile safe."""
    archs = {device.arch for device in env.usable_devices}
    if archs and tuned.arch not in archs:
        _log.warning(
            "the plan was tuned on %s (%s), but this machine has %s: using profile safe instead; tune again with rocsolid tune",
            tuned.device,
            tuned.arch,
            ", ".join(sorted(archs)),
        )
        return resolve_profile("safe", env)
    if plan.torch != env.torch_version:
        _log.warning(
            "the plan was tuned with torch %s, but this is torch %s: its values are used, but may no longer be the fastest",
            plan.torch,
            env.torch_version,
        )
    return plan


def _run_in_child(command: Sequence[str], deadline_s: float) -> CheckResult:
    """Run a command in a child process with a deadline."""
    return run_with_deadline(Command(name="in a child process", command=tuple(command), deadline_s=deadline_s)).check


def try_in_child_process(
    action: str,
    task: Mapping[str, Any],
    call: tuple[Any, Sequence[Any], Mapping[str, Any]],
    deadline_s: float,
) -> str:
    """Compile or capture a call in a child process; return why that failed, or "" if it worked or could not be tried.

    `action` is "compiling" or "capturing", for messages; `task` is described in `try_in_child`.
    """
    result = try_in_child(_run_in_child, deadline_s, *call, task)
    if result.status is CheckStatus.SKIPPED:
        _log.warning("%s; %s in this process without testing it in a child process first", result.detail, action)
    if result.status in (CheckStatus.OK, CheckStatus.SKIPPED):
        return ""
    if result.status is CheckStatus.HUNG:
        return f"{action} in a child process did not finish within {deadline_s:.0f} s"
    return f"{action} in a child process {result.status.value} after {result.seconds:.0f} s ({result.detail})"


def _trial(deadline_s: float) -> Any:
    """Return a function that compiles a call in a child process first and returns why that failed, or an empty string."""

    def trial(model: Any, arguments: Mapping[str, Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
        return try_in_child_process("compiling", {"compile": dict(arguments)}, (model, args, kwargs), deadline_s)

    return trial
