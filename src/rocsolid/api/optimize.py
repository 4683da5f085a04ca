"""One call from a model to its fast, verified form."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from rocsolid.api.capture import capture
from rocsolid.api.safety import chosen_plan, tried_elsewhere
from rocsolid.errors import UsageError
from rocsolid.model.bucket import Bucket
from rocsolid.model.plan import Plan
from rocsolid.optimize.example_inputs import Example, examples_of
from rocsolid.optimize.optimized import Optimized, optimized
from rocsolid.optimize.progressive import Progressive
from rocsolid.probe.quick_facts import quick_environment
from rocsolid.runtime.capture.options import Verify
from rocsolid.runtime.compiled import choose_options, compiled_with
from rocsolid.torchapi.pytree import flatten

_COMPILE_S: Final = 900.0


def optimize(  # noqa: PLR0913 - each is one decision, and all have defaults
    model: Callable[..., Any],
    example_inputs: Any,
    *,
    profile: str = "fast",
    plan: Plan | str | Path | None = None,
    budget_s: float | None = None,
    buckets: Mapping[str, Bucket | Sequence[Bucket]] | None = None,
    verify: str | Verify = "first",
    progressive: bool = False,
    artefacts: str | Path | None = None,
) -> Optimized:
    """Compile, capture, verify and measure every form of a model on an example, and return the fastest that answers rightly.

    Candidates are the model as it is, compiled whole and by its repeated layers, and each of these captured as one device
    graph. They take turns in one race; one that answers otherwise than eager is thrown out with its error. Without a device
    nothing is captured.

    Args:
        model: any callable or module; call this in the grad mode in which it will be used.
        example_inputs: a tensor, a tuple of arguments, a dict of named ones, `(args, kwargs)`, or a list of such examples.
        profile: whose settings compile the model when no plan is given.
        plan: a plan, or the file of one.
        budget_s: about how long all of this may take; what does not fit is skipped, and the report says so.
        buckets: sizes that changing dimensions are padded to, as `rs.capture` takes them.
        verify: how often replays are compared with eager, as `rs.capture` takes it.
        progressive: answer at once with an eager form, compile beside that (in a child process first), and change over when
            the compiled form has been checked and is faster; `wait()` waits for that.
        artefacts: folder in which what was compiled is kept for the next process; one of this user's own when left out.

    Example:
        >>> import rocsolid as rs, torch
        >>> fast = rs.optimize(torch.sin, torch.ones(4), budget_s=0)
        >>> fast.report().chosen
        'eager'

    """
    if not callable(model):
        msg = f"the model must be callable; got a {type(model).__name__}"
        raise UsageError(msg)
    examples = examples_of(example_inputs)

    def captured(function: Callable[..., Any]) -> Any:
        return capture(function, buckets=buckets, verify=verify, max_graphs=max(8, len(examples)))

    on_device = any(flatten((example.args, dict(example.kwargs)), "").on_device for example in examples)
    chosen = chosen_plan(profile, plan, quick_environment())
    capturing = captured if on_device else None
    if not progressive:
        kept_in = Path(artefacts) if artefacts is not None else None
        return optimized(model, examples, chosen, capture=capturing, budget_s=budget_s, artefacts=kept_in)
    limit_s = _COMPILE_S if budget_s is None else budget_s
    return Progressive(
        model,
        examples,
        profile=chosen.profile,
        compiled=lambda: compiled_with(chosen, model, deadline_s=limit_s),
        capture=capturing,
        trial=partial(_compiled_elsewhere, model, examples, chosen, limit_s),
    )


def _compiled_elsewhere(model: Callable[..., Any], examples: Sequence[Example], plan: Plan, limit_s: float) -> str:
    """Compile every example in a child process; nothing when that went well, or cannot be tried."""
    options, _ = choose_options(plan, None, None)
    for example in examples:
        call = (model, example.args, example.kwargs)
        if why := tried_elsewhere("compiling", {"compile": {"options": options}}, call, limit_s):
            return why
    return ""
