"""`rs.optimize`: measure every form of a model and return the fastest one with correct results."""

import inspect
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from rocsolid.api.capture import capture
from rocsolid.api.safety import select_plan, try_in_child_process
from rocsolid.catalog import candidates
from rocsolid.catalog.registry import find as find_setting
from rocsolid.errors import UsageError, require_number
from rocsolid.model.bucket import Bucket
from rocsolid.model.environment import Environment
from rocsolid.model.finding import Severity
from rocsolid.model.optimize_report import OptimizeReport
from rocsolid.model.plan import Decision, Plan
from rocsolid.model.progress import OnStep
from rocsolid.model.setting import Channel, Needs, Value
from rocsolid.numerics import Tolerance, limits_for
from rocsolid.ops.shipped.aiter_kernels import AITER_INSTALLED
from rocsolid.optimize.autocast import has_bfloat16_instructions
from rocsolid.optimize.child_race import NoChildRace, race_in_child
from rocsolid.optimize.example_inputs import Example, to_examples
from rocsolid.optimize.first_call import FirstCall
from rocsolid.optimize.graph_passes import is_pass
from rocsolid.optimize.optimized import OptimizedModule, optimized, optimized_module
from rocsolid.optimize.passes.eager_numerics import exact_options
from rocsolid.optimize.progressive import Progressive
from rocsolid.optimize.settings_search import TriedSetting
from rocsolid.probe.pretended import pretended_chip
from rocsolid.probe.quick_facts import quick_environment
from rocsolid.report.progress import steps_for
from rocsolid.runtime.capture.captured import Captured, CapturedModule
from rocsolid.runtime.capture.options import Verify, parse_verify
from rocsolid.runtime.compiled import choose_options, compile_with_plan
from rocsolid.runtime.wrapped_module import refuse_distributed_wrapper
from rocsolid.torchapi.inductor.graph_pass import passes_supported
from rocsolid.torchapi.pytree import flatten

_COMPILE_DEADLINE_S: Final = 900.0
_RACE_PLACES: Final = ("auto", "child", "process")
_CHILD_SHARE: Final = (
    0.6  # of the budget; this process needs the rest to set up the fastest form, or to race if the child fails
)
_MIN_CHILD_BUDGET_S: Final = 20.0


def optimize(  # noqa: PLR0913 - each is one decision, and all have defaults
    model: Any,
    example_inputs: Any = None,
    *,
    profile: str = "fast",
    plan: Plan | str | Path | None = None,
    budget_s: float | None = None,
    buckets: Mapping[str, Bucket | Sequence[Bucket]] | None = None,
    verify: str | Verify = "first",
    progressive: bool = False,
    artefacts: str | Path | None = None,
    freeze: bool = False,
    rtol: float | None = None,
    atol: float | None = None,
    limit: float | None = None,
    race_in: str = "auto",
    progress: bool | OnStep = False,
) -> Any:
    """Compile, capture, verify and measure every form of a model on an example; return the fastest form with correct results.

    The forms are eager, compiled as a whole, and compiled by region (its repeated layers), each also captured as one CUDA graph or
    HIP graph. All forms are measured in interleaved rounds. On a GPU this happens in a child process, and only the fastest form is set
    up and verified in this one: each further graph of a process can slow down all its graphs.

    On a GPU the compiled forms have the settings of the compiler and the graph passes of rocsolid that mostly help. The fastest one is
    then tried without those that do not always help, and with others, one by one; each is kept if it makes the form faster.
    `rocsolid.catalog.candidates` lists them. Those whose set-up would end after `budget_s`, or without a budget 60 s (30 s on a GPU)
    after the first race, are listed as skipped.

    The passes are tried on a GPU, for inference (`torch.no_grad()`, `torch.inference_mode()`). They compute attention, matrix products
    with few rows and activations in rocsolid's kernels, and `nn.Linear` layers that get the same input (Q, K and V; gate and up) as one
    matrix product. For this the weights of such layers are moved next to each other in memory; the parameters, their values and
    `state_dict` stay the same, and weights that are changed later are used. Where the process has a CUDA graph of its own, which would
    read the old memory, weights are not moved.

    A form whose results differ from eager is compared with the model in higher precision, and so is eager. It is excluded if its error
    is more than 1.1 times eager's; the report shows both errors.

    Args:
        model: any callable or module. Call `rs.optimize` in the grad mode in which the model will be used.
        example_inputs: a tensor, a tuple of arguments, a dict of named ones, `(args, kwargs)`, or a list of such examples. When left
            out, the first call is the example: it runs in eager, and the forms are measured before it returns. Programs of other
            libraries are recognised: `generate` of transformers, pipelines of diffusers, policies with `select_action`.
        profile: the profile to compile with when no plan is given.
        plan: a plan, or the path of a plan file.
        budget_s: how long the whole call may take; forms for which no time is left are skipped and listed as skipped in the report.
        buckets: sizes that changing dimensions are padded to, as for `rs.capture`.
        verify: how often replays are compared with eager, as for `rs.capture`. A form without a graph is compared only before it is chosen.
        progressive: return immediately with an eager form, compile in the background (first in a child process), and switch to the
            compiled form when it is verified and faster; `wait()` blocks until this has ended.
        freeze: also try weights as constants of the compiled code, for inference under `torch.no_grad()` or
            `torch.inference_mode()`. If they are changed later, the model runs in eager from then on; writes through `.data` and
            replaced parameters are not noticed.
        artefacts: folder in which compiled code is saved for the next process; by default a folder in the user's cache.
        rtol: allowed relative difference of each element from eager; depends on the dtype when left out.
        atol: allowed absolute difference of each element from eager.
        limit: relative L2 difference from eager that is accepted without comparing with higher precision. With it, the decode step
            of `generate` of transformers is compiled, too, if its logits differ by at most so much; with 0 they have to be bitwise
            equal in 64 steps.
        race_in: where all forms are built and measured: 'child' (a child process, if the model can be pickled), 'process' (this
            one), or 'auto': a child process for a model on a GPU. The report says where it was, and why.
        progress: True shows on stderr what is tried, how far it is and the best so far; a function is called with each `rs.Step`.

    Example:
        >>> import rocsolid as rs, torch
        >>> fast = rs.optimize(torch.sin, torch.ones(4), budget_s=0)
        >>> fast.report().chosen.label
        'eager'

    """
    if not callable(model) and not _is_openpi_policy(model):
        msg = f"rs.optimize needs a callable or a module; got {type(model).__name__}"
        raise UsageError(msg)
    if isinstance(model, OptimizedModule):
        model = model.__rocsolid_function__  # optimized again: the module inside
    refuse_distributed_wrapper(model, "rs.optimize", "DistributedDataParallel")
    require_number("rs.optimize: budget_s", budget_s)
    parse_verify(verify)
    if race_in not in _RACE_PLACES:
        msg = f"rs.optimize: race_in={race_in!r}: use {', '.join(map(repr, _RACE_PLACES))}"
        raise UsageError(msg)
    if example_inputs is None:
        optimize_for = partial(
            optimize, profile=profile, plan=plan, budget_s=budget_s, buckets=buckets, verify=verify, progressive=progressive,
            artefacts=artefacts, freeze=freeze, rtol=rtol, atol=atol, limit=limit, progress=progress, race_in=race_in,
        )  # fmt: skip

        def from_first_call(part: Callable[..., Any]) -> Any:
            return optimized_module(FirstCall(part, lambda call: optimize_for(part, (call.args, call.kwargs))))

        capture_function = partial(_capture_function, buckets=buckets, verify=verify)
        compile_model = partial(_compile_for_fixed_sizes, profile=profile, plan=plan, deadline_s=budget_s)
        program = _optimize_program(model, capture_function, from_first_call, compile_model, limit)
        return from_first_call(model) if program is None else program
    examples = to_examples(example_inputs)

    capture_function = partial(_capture_function, buckets=buckets, verify=verify, max_graphs=max(8, len(examples)))
    on_device = any(flatten((example.args, dict(example.kwargs)), "").on_device for example in examples)
    env = quick_environment()
    selected_plan = select_plan(profile, plan, env)
    capture_if_gpu = capture_function if on_device else None
    tolerance = Tolerance(rtol=rtol, atol=atol, limit=limit)
    _check_bucket_names(model, examples, buckets)
    if artefacts is not None and progressive:
        msg = (
            "rs.optimize: artefacts= and progressive=True exclude each other: with progressive=True compiled code is kept only in torch's "
            "own cache, which makes the compile in the next process shorter"
        )
        raise UsageError(msg)
    if freeze and progressive:
        msg = "rs.optimize: freeze=True and progressive=True exclude each other: settings are tried before the model is returned"
        raise UsageError(msg)
    if not progressive:
        folder = Path(artefacts) if artefacts is not None else None
        with steps_for(progress) as on_step:
            options = {
                "plan": selected_plan,
                "buckets": buckets,
                "verify": "off" if verify == "off" else "first",
                "freeze": freeze,
                "artefacts": folder.absolute() if folder else None,
                "rtol": rtol,
                "atol": atol,
                "limit": limit,
            }
            in_child = race_in == "child" or (race_in == "auto" and on_device)
            return optimized(
                model,
                examples,
                selected_plan,
                capture=capture_if_gpu,
                budget_s=budget_s,
                artefacts=folder,
                tolerance=tolerance,
                tried_settings=_tried_settings(
                    model,
                    selected_plan,
                    env,
                    tolerance,
                    freeze=freeze,
                    on_device=on_device,
                    has_budget=budget_s is not None,
                ),
                on_step=on_step,
                child_race=partial(_race_in_child, model, examples, options, budget_s, on_step) if in_child else None,
                checks_expected=bool(parse_verify(verify).calls),
            )
    deadline_s = _COMPILE_DEADLINE_S if budget_s is None else budget_s
    progressive_model = Progressive(
        model,
        examples,
        profile=selected_plan.profile,
        compiled=lambda: compile_with_plan(selected_plan, model, deadline_s=deadline_s),
        capture=capture_if_gpu,
        trial=partial(_compile_in_child, model, examples, selected_plan, deadline_s),
        tolerance=tolerance,
        checks_expected=bool(parse_verify(verify).calls),
    )
    return optimized_module(progressive_model)


def _check_bucket_names(
    model: Callable[..., Any], examples: Sequence[Example], buckets: Mapping[str, Bucket | Sequence[Bucket]] | None
) -> None:
    """Raise UsageError if no argument of any example has a name of `buckets=`: without a GPU nothing is captured that would refuse it."""
    if not buckets:
        return
    import torch

    forward = model.forward if isinstance(model, torch.nn.Module) else model
    names: set[str] = set()
    for example in examples:
        try:
            bound = inspect.signature(forward).bind(*example.args, **example.kwargs)
        except (TypeError, ValueError):  # no signature; or the call itself is wrong, which it will say
            return
        names |= {*bound.arguments, *example.kwargs}
    if names.isdisjoint(re.split(r"[.\[]", name)[0] for name in buckets):
        given, known = (", ".join(f"`{name}`" for name in which) for which in (buckets, sorted(names)))
        msg = f"rs.optimize: buckets= names {given}, but the call has no such argument; it has {known}"
        raise UsageError(msg)


def _capture_function(function: Callable[..., Any], **options: Any) -> Captured:
    captured = capture(function, **options)
    found: Captured = captured.rocsolid if isinstance(captured, CapturedModule) else captured
    return found


def _compile_for_fixed_sizes(
    model: Any, *, exact: bool, profile: str, plan: Plan | str | Path | None, deadline_s: float | None
) -> Any:
    """Return the compiled model; None if there is no time for it, or if this torch cannot compile with the numerics of eager."""
    device_type = next((parameter.device.type for parameter in model.parameters()), "cpu")
    options = exact_options(device_type) if exact else None
    if deadline_s == 0 or options == {}:
        return None
    selected = select_plan(profile, plan, quick_environment())
    deadline_s = _COMPILE_DEADLINE_S if deadline_s is None else deadline_s
    return compile_with_plan(selected, model, deadline_s=deadline_s, dynamic=False, options=options)


def _optimize_program(
    program: Any,
    capture_function: Callable[..., Captured],
    optimize_part: Callable[[Any], Any],
    compile_model: Callable[..., Any],
    limit: float | None,
) -> Any:
    """Optimize a program of another library that makes several calls of models; None if this is none."""
    if "transformers" in sys.modules and (hasattr(program, "generate") or hasattr(program, "postprocess")):
        from rocsolid.integrations import transformers

        def optimize_model(model: Any) -> Any:
            made = _optimize_program(model, capture_function, optimize_part, compile_model, limit)
            return optimize_part(model) if made is None else made

        if transformers.is_generator(program):
            return transformers.optimize_generate(program, capture_function, compile_model=compile_model, limit=limit)
        if transformers.is_pipeline(program):
            return transformers.optimize_pipeline(program, optimize_model)
    if "diffusers" in sys.modules and hasattr(program, "components"):
        from rocsolid.integrations import diffusers

        if diffusers.is_pipeline(program):
            return diffusers.optimize_pipeline(program, optimize_part)
    if hasattr(program, "select_action") or _is_openpi_policy(program):
        from rocsolid.integrations import policies

        if policies.is_policy(program):
            return policies.optimize_policy(program, optimize_part)
        if policies.is_openpi_policy(program):
            return policies.optimize_openpi_policy(program, optimize_part)
    return None


def _is_openpi_policy(program: Any) -> bool:
    if not hasattr(program, "_sample_actions"):
        return False
    from rocsolid.integrations import policies

    return policies.is_openpi_policy(program)


def _tried_settings(
    model: Callable[..., Any],
    plan: Plan,
    env: Environment,
    tolerance: Tolerance,
    *,
    freeze: bool,
    on_device: bool,
    has_budget: bool = False,
) -> list[TriedSetting]:
    """The values that are tried for a model on this device, in the order of the catalogue, which declares them.

    Values that the plan has already, or that its guards forbid, are not tried.
    """
    import torch

    no_gradients = not torch.is_grad_enabled()
    allows_bfloat16 = (tolerance.limit or 0.0) >= limits_for(torch.bfloat16).rounding
    found: Mapping[Needs | None, Callable[[], bool]] = {
        None: lambda: True,
        Needs.NO_GRADIENTS: lambda: no_gradients,
        Needs.CONSTANT_WEIGHTS: lambda: no_gradients and freeze,
        Needs.CONVOLUTIONS: lambda: _has_convolution(model),
        Needs.LOWER_PRECISION: lambda: allows_bfloat16 and has_bfloat16_instructions(),
        Needs.CUDNN_ATTENTION: torch.backends.cuda.cudnn_sdp_enabled,
        Needs.AITER: lambda: no_gradients and AITER_INSTALLED,
        Needs.BUDGET: lambda: no_gradients and has_budget,
    }
    return [
        TriedSetting(
            _decision(x.id, x.value, f"rs.optimize tries it on the {'GPU' if on_device else 'CPU'}: {x.effect}."),
            setup_factor=x.setup_factor,
            also=tuple(
                _decision(name, value, f"{x.id} needs it.")
                for name, value in x.also
                if _may_set(name, value, plan, env)
            ),
            setup_s=x.setup_s,
            joint=x.joint,
            suspect=x.suspect,
        )
        for x in (candidates.ON_GPU if on_device else candidates.ON_CPU)
        if x.when.holds(env) and _may_set(x.id, x.value, plan, env) and found[x.needs]()
    ]


def _may_set(name: str, value: Value, plan: Plan, env: Environment) -> bool:
    """Whether this torch has a setting, and the plan another value that it does not insist on."""
    if is_pass(name):
        return passes_supported()
    declared = find_setting(name)
    if declared is None:  # only rs.optimize can switch it on
        return True
    hazard = declared.hazard(value, env)
    decided = plan.get(name)
    harmful = hazard is not None and hazard.severity is Severity.CRITICAL
    return (
        declared.valid.holds(env) and not harmful and (decided is None or not (decided.guard or decided.value == value))
    )


def _decision(name: str, value: Value, why: str) -> Decision:
    declared = find_setting(name)
    channel = declared.channel if declared else Channel.SCOPE
    return Decision(id=name, value=value, channel=channel, why=why, profile="optimize")


def _has_convolution(model: Callable[..., Any]) -> bool:
    import torch

    kinds = (torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d)
    return isinstance(model, torch.nn.Module) and any(isinstance(part, kinds) for part in model.modules())


def _race_in_child(
    model: Callable[..., Any],
    examples: Sequence[Example],
    options: Mapping[str, Any],
    budget_s: float | None,
    on_step: OnStep,
) -> OptimizeReport | NoChildRace:
    """Call `rs.optimize` in a child process, with a part of the budget."""
    import torch

    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return NoChildRace("it is one of several processes of torch.distributed, and a child process would not be")
    if pretended_chip():
        return NoChildRace("the GPU is only pretended")
    if budget_s is not None and budget_s < _MIN_CHILD_BUDGET_S:
        return NoChildRace(f"a child process takes seconds to start, and budget_s is {budget_s:g}")
    return race_in_child(
        optimize,
        model,
        examples,
        {**options, "race_in": "process"},
        budget_s=budget_s * _CHILD_SHARE if budget_s is not None else None,
        on_step=on_step,
    )


def _compile_in_child(model: Callable[..., Any], examples: Sequence[Example], plan: Plan, deadline_s: float) -> str:
    """Compile the model for every example in a child process; return why that failed, or "" if it worked or could not be tried."""
    options, _ = choose_options(plan, None, None)
    first, *others = examples
    # All in one process and in the same order as here: a second size makes torch compile for any size.
    more_calls = [(example.args, dict(example.kwargs)) for example in others]
    task = {"compile": {"options": options}, "background": True, "more_calls": more_calls}
    return try_in_child_process("compiling", task, (model, first.args, first.kwargs), deadline_s)
