"""`rs.verify`: decide whether a candidate is wrong or only different."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rocsolid.errors import UnknownNameError, UsageError
from rocsolid.model.plan import Plan
from rocsolid.model.progress import OnStep, Step
from rocsolid.model.verify_report import VerifyReport
from rocsolid.new_torch import check_new_torch


def verify(  # noqa: PLR0913 - all but three are keywords
    candidate: Callable[..., Any],
    reference: Callable[..., Any],
    inputs: Any,
    *,
    seeds: int = 3,
    scales: Sequence[float] = (1.0, 16.0),
    rtol: float | None = None,
    atol: float | None = None,
    limit: float | None = None,
    ratio: float | None = None,
    selects: Mapping[str, str] | None = None,
    ignore: Sequence[str] = (),
    culprit: bool = True,
    progress: bool | OnStep = False,
) -> VerifyReport:
    """Compare a candidate with the model in eager, and both with the model in higher precision.

    The verdict on each result is `same`, `different but as accurate`, `less accurate` or `wrong`. Call it in the grad mode in which the
    model is used.

    Args:
        candidate: the function or module to check: compiled, captured or rewritten.
        reference: the model it must agree with, in eager.
        inputs: a tensor, a tuple of arguments, a dict of named ones, `(args, kwargs)`, or a list of such examples.
        seeds: how many sets of values are tried; the first is the given one.
        scales: factors for the floating-point inputs.
        rtol: allowed relative difference of each element from eager; depends on the dtype when left out.
        atol: allowed absolute difference of each element from eager.
        limit: relative L2 difference from eager that is accepted without comparing with higher precision.
        ratio: how many times eager's own error the candidate's may be; 1.1 when left out.
        selects: results that are positions in the last dimension of another result, by path: `{"result[1]": "result[0]"}`.
        ignore: results that are not compared, by path.
        culprit: for a wrong result, find the first operator that is wrong.
        progress: True shows on stderr what runs; a function is called with each `rs.Step`.

    Example:
        >>> import rocsolid as rs, torch
        >>> report = rs.verify(lambda x: x.relu(), torch.sin, torch.ones(4))
        >>> report.verdict.value, report.culprit.op
        ('wrong', 'aten.relu.default')

    """
    from rocsolid.numerics import MAX_ERROR_RATIO, Tolerance
    from rocsolid.optimize.example_inputs import to_examples
    from rocsolid.optimize.optimized import device_and_versions
    from rocsolid.report.progress import steps_for
    from rocsolid.verify.candidate import Cases, measure_baseline, with_culprit

    for name, function in (("candidate", candidate), ("reference", reference)):
        if not callable(function):
            msg = f"rs.verify needs a callable or a module as {name}; got {type(function).__name__}"
            raise UsageError(msg)
    if seeds < 1 or not scales:
        msg = f"rs.verify needs at least one set of inputs; got seeds={seeds}, scales={tuple(scales)}"
        raise UsageError(msg)
    tolerance = Tolerance(
        rtol=rtol,
        atol=atol,
        limit=limit,
        ratio=MAX_ERROR_RATIO if ratio is None else ratio,
        ignore=tuple(ignore),
        selects=selects,
    )
    check_new_torch()
    examples = to_examples(inputs)
    with steps_for(progress) as on_step:
        on_step(Step(what="running eager and the model in higher precision", total=3, alike=False))
        baseline = measure_baseline(reference, examples, Cases(seeds=seeds, scales=tuple(scales)), tolerance)
        on_step(Step(what="running the candidate", done=1, total=3, alike=False))
        check = baseline.check("candidate", candidate)
        if culprit:
            on_step(Step(what="looking for the first operator that is wrong", done=2, total=3, alike=False))
            check = with_culprit(check, baseline, candidate)
    return VerifyReport(
        name=getattr(candidate, "__name__", type(candidate).__name__),
        machine=device_and_versions(),
        reference=baseline.reference_name,
        forms=(check,),
        notes=tuple(baseline.notes),
    )


def verify_workload(  # noqa: PLR0913 - the options of the command
    workload: str,
    *,
    forms: Sequence[str] = (),
    profile: str = "fast",
    plan: Plan | str | Path | None = None,
    seeds: int = 3,
    scales: Sequence[str | float] = (1.0, 16.0),
    rtol: float | None = None,
    atol: float | None = None,
    limit: float | None = None,
    ratio: float | None = None,
    deadline_s: float = 600.0,
    grad: bool = False,
    bisect: bool = False,
    on_status: Callable[[str], None] = lambda _: None,
) -> VerifyReport:
    """Check the forms of a workload `file.py:function` in child processes; with `bisect`, find what makes a compiled form wrong."""
    from rocsolid.api.safety import select_plan
    from rocsolid.model.form import Form
    from rocsolid.model.workload import WorkloadName
    from rocsolid.numerics import MAX_ERROR_RATIO
    from rocsolid.probe.quick_facts import quick_environment
    from rocsolid.tune.isolate.trial import Limits
    from rocsolid.verify import workload as engine
    from rocsolid.verify.trial import RECORDED, VENDOR_OPS

    WorkloadName.parse(workload)
    known = [*(form.label for form in Form if form is not Form.EAGER), RECORDED, VENDOR_OPS]
    for form in forms:
        if form not in known:
            raise UnknownNameError(kind="form", name=form, known=known)
    try:
        factors = [float(scale) for scale in scales]
    except ValueError as error:
        msg = f"--scales takes numbers separated by commas, such as 1,16: {error}"
        raise UsageError(msg) from error
    if seeds < 1 or not factors:
        msg = f"at least one set of inputs is needed; got seeds={seeds}, scales={factors}"
        raise UsageError(msg)
    limits = Limits(phases={"import": 180.0, "build": deadline_s, "measure": deadline_s})
    return engine.verify_workload(
        workload,
        plan=select_plan(profile, plan, quick_environment()),
        forms=forms,
        seeds=seeds,
        scales=factors,
        tolerance={"rtol": rtol, "atol": atol, "limit": limit, "ratio": MAX_ERROR_RATIO if ratio is None else ratio},
        grad=grad,
        limits=limits,
        bisect=bisect,
        on_status=on_status,
    )
