"""One call from a model to its fast, verified form."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from rocsolid.api.capturing import capture
from rocsolid.api.safety import chosen_plan
from rocsolid.errors import UsageError
from rocsolid.model.bucket import Bucket
from rocsolid.model.plan import Plan
from rocsolid.optimize.examples import examples_of
from rocsolid.optimize.optimized import Optimized, optimized
from rocsolid.probe.surroundings import surroundings
from rocsolid.runtime.capture.options import Verify
from rocsolid.runtime.capture.tree import take_apart


def optimize(
    model: Callable[..., Any],
    example_inputs: Any,
    *,
    profile: str = "fast",
    plan: Plan | str | Path | None = None,
    budget_s: float | None = None,
    buckets: Mapping[str, Bucket | Sequence[Bucket]] | None = None,
    verify: str | Verify = "first",
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

    leaves = [leaf for example in examples for leaf in take_apart((example.args, dict(example.kwargs)), "").leaves]
    on_device = any(isinstance(leaf.value, torch.Tensor) and leaf.value.device.type == "cuda" for leaf in leaves)
    return optimized(
        model,
        examples,
        chosen_plan(profile, plan, surroundings()),
        capture=captured if on_device else None,
        budget_s=budget_s,
    )
