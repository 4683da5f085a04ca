"""Apply, compile and guard under a profile."""

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from rocsolid.catalog.overrides import apply_overrides
from rocsolid.catalog.profiles import resolve as resolve_profile
from rocsolid.errors import PlanError
from rocsolid.model.environment import CheckResult, CheckStatus, Environment
from rocsolid.model.plan import Plan, Tuned
from rocsolid.model.platform import Platform
from rocsolid.probe.quick_facts import quick_environment
from rocsolid.process.run_command import Question, ask
from rocsolid.runtime.applied_plan import Applied
from rocsolid.runtime.compile_in_child import try_in_child
from rocsolid.runtime.compiled import compiled_with
from rocsolid.runtime.guard import Guard

_CHILD_DEADLINE_S = 900.0
_log = logging.getLogger("rocsolid")


def apply(plan: Plan, *, anywhere: bool = False) -> Applied:
    """Put a plan's values in force: `with rs.apply(plan):` for a block, `rs.apply(plan).keep()` for the process.

    The values hold in every thread. `print` the result to see what each came to; a value that already held is shown as such.

    Args:
        plan: from `rs.resolve` or `rs.Plan.load`.
        anywhere: also apply a plan that was made for another platform.

    Example:
        >>> import rocsolid as rs
        >>> with rs.apply(rs.resolve("safe")) as applied:
        ...     applied.plan.profile
        'safe'

    """
    return Applied(plan=fitting(plan, quick_environment(), anywhere=anywhere))


def compile(  # noqa: A001 - the public name is torch's
    model: Any = None,
    *,
    profile: str = "safe",
    plan: Plan | str | Path | None = None,
    deadline_s: float | None = None,
    recompiles: int | None = None,
    in_child: bool = False,
    mode: str | None = None,
    options: Mapping[str, object] | None = None,
    **kwargs: Any,
) -> Any:
    """`torch.compile` with a plan riding on the function, so that it holds in whichever thread compiles.

    What you ask for by `mode` or `options` wins over the profile, unless the profile insists on its value on this platform; what
    was refused is said, and kept in `fn.rocsolid.interventions`. Works as a decorator too.

    Args:
        model: a module, function or method.
        profile: whose values ride on the function when no plan is given.
        plan: a plan, or the file of one.
        deadline_s: a compile that takes longer is called off, with all stacks logged, and the function runs eagerly.
        recompiles: how often the function may be compiled again; one more is an error that names the argument that changed.
        in_child: compile once in a process of its own first, so that a hang or crash in native code costs its time and no more.
        mode: as torch.compile takes it.
        options: as torch.compile takes them; both may be given here.
        kwargs: passed on to torch.compile.

    Example:
        >>> import rocsolid as rs, torch
        >>> double = rs.compile(lambda x: x * 2, recompiles=2)
        >>> double(torch.ones(2)).tolist()
        [2.0, 2.0]

    """
    if model is None:
        return partial(
            compile,
            profile=profile,
            plan=plan,
            deadline_s=deadline_s,
            recompiles=recompiles,
            in_child=in_child,
            mode=mode,
            options=options,
            **kwargs,
        )
    env = quick_environment()
    return compiled_with(
        chosen_plan(profile, plan, env),
        model,
        mode=mode,
        options=options,
        deadline_s=deadline_s,
        recompiles=recompiles,
        trial=_trial(deadline_s or _CHILD_DEADLINE_S) if in_child else None,
        **kwargs,
    )


def guard(profile: str = "safe", *, plan: Plan | str | Path | None = None, deadline_s: float | None = None) -> Guard:
    """Make every `torch.compile` safe: `with rs.guard():` for a block, `rs.guard().keep()` for the process.

    On ROCm what the profile insists on is pinned, however and in whichever thread it is asked for otherwise. On CUDA and CPU
    everything is left exactly as it was. `guard.interventions` tells who asked for what and what they got.

    Args:
        profile: whose values hold.
        plan: a plan, or the file of one, in place of the profile.
        deadline_s: every compile that takes longer is called off and the function runs eagerly; on any platform.

    Example:
        >>> import rocsolid as rs
        >>> with rs.guard() as guard:
        ...     guard.interventions
        ()

    """
    env = quick_environment()
    return Guard(guarding(chosen_plan(profile, plan, env), env), deadline_s=deadline_s)


def guarding(plan: Plan, env: Environment) -> Plan | None:
    """The part of a plan that the guard enforces: all of it on ROCm, elsewhere only what the environment insists on."""
    if env.platform is Platform.ROCM:
        return plan
    insisted = tuple(d for d in plan if d.profile == "variable")
    return replace(plan, decisions=insisted) if insisted else None


def chosen_plan(profile: str, plan: Plan | str | Path | None, env: Environment, *, anywhere: bool = False) -> Plan:
    """The plan given, or the profile's, with what `ROCSOLID_<SETTING>` variables say on top."""
    if plan is None:
        chosen = resolve_profile(profile, env)
    else:
        chosen = fitting(plan if isinstance(plan, Plan) else Plan.load(plan), env, anywhere=anywhere)
    return apply_overrides(chosen, os.environ)


def fitting(plan: Plan, env: Environment, *, anywhere: bool = False) -> Plan:
    """The plan, when it was made for this platform; raises PlanError otherwise, unless told that it may be used anywhere."""
    if plan.platform is not env.platform and not anywhere:
        msg = (
            f"the plan was made for {plan.platform.label}, and this is {env.platform.label}; "
            "make one here (rs.resolve, rocsolid tune), or say that it may be used anywhere"
        )
        raise PlanError(msg)
    if plan.tuned is None or anywhere:
        return plan
    return _still_true(plan, plan.tuned, env)


def _still_true(plan: Plan, tuned: Tuned, env: Environment) -> Plan:
    """A tuned plan says what was measured on one chip: on another the safe profile is used in its place."""
    chips = {device.arch for device in env.usable_devices}
    if chips and tuned.arch not in chips:
        _log.warning(
            "the plan was tuned on %s (%s), and this is %s: the safe profile is used instead; tune again here",
            tuned.device,
            tuned.arch,
            ", ".join(sorted(chips)),
        )
        return resolve_profile("safe", env)
    if plan.torch != env.torch_version:
        _log.warning(
            "the plan was tuned with torch %s, and this is %s: its values are used, but what they are worth may have changed",
            plan.torch,
            env.torch_version,
        )
    return plan


def asked(command: Sequence[str], deadline_s: float) -> CheckResult:
    """Run a command of ours in a child, against a deadline."""
    return ask(Question(name="in a child", command=tuple(command), deadline_s=deadline_s)).answer


def tried_elsewhere(
    doing: str,
    what: Mapping[str, Any],
    call: tuple[Any, Sequence[Any], Mapping[str, Any]],
    deadline_s: float,
) -> str:
    """Do something with a call in a child process first; nothing when that went well, or cannot be tried."""
    answer = try_in_child(asked, deadline_s, *call, what)
    if answer.status is CheckStatus.SKIPPED:
        _log.warning("%s; it is done in this process", answer.detail)
    if answer.status in (CheckStatus.OK, CheckStatus.SKIPPED):
        return ""
    return f"{doing} in a child process {answer.status.value} after {answer.seconds:.0f} s ({answer.detail})"


def _trial(deadline_s: float) -> Any:
    def trial(model: Any, given: Mapping[str, Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
        why = tried_elsewhere("compiling", {"compile": dict(given)}, (model, args, kwargs), deadline_s)
        return f"{why}; the function runs eagerly" if why else ""

    return trial
