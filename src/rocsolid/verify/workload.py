"""Checks the forms of a workload in child processes, and bisects a wrong one. A child that hangs or crashes is replaced."""

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from rocsolid.errors import CannotRunError
from rocsolid.model.codec import decode, encode
from rocsolid.model.plan import Plan
from rocsolid.model.verify_report import Accuracy, Culprit, FormCheck, VerifyReport
from rocsolid.tune.isolate.trial import Limits, Trial, TrialSpec

_PROGRAM: Final = "rocsolid.verify.trial:serve"
_STAGES: Final = {
    "eager": "dynamo (the graph that it traces)",
    "aot_eager": "aot autograd",
    "aot_eager_decomp_partition": "decompositions",
    "inductor": "inductor",
}
# Settings of Inductor that change results, with the value that is tried. The least costly one is first.
_SETTINGS: Final[Mapping[str, Any]] = {
    "inductor.emulate_precision_casts": True,
    "inductor.fallback_random": True,
    "inductor.pattern_matcher": False,
    "inductor.epilogue_fusion": False,
    "inductor.layout_optimization": False,
    "inductor.comprehensive_padding": False,
    "inductor.split_reductions": False,
    "inductor.freezing": False,
    "inductor.post_grad_custom_pre_pass": None,
    "inductor.post_grad_custom_post_pass": None,
    "inductor.joint_custom_pre_pass": None,
    "inductor.joint_custom_post_pass": None,
    "inductor.pre_grad_custom_pass": None,
    "inductor.max_fusion_size": 1,
}
Progress = Callable[[str], None]


@dataclass
class Bench:
    """A child process that checks forms and parts of the workload; replaced when it ends."""

    params: Mapping[str, Any]
    limits: Limits
    folder: Path
    on_status: Progress
    variables: Mapping[str, str] = field(default_factory=dict)
    trials: int = 0
    _trial: Trial | None = field(default=None, repr=False)

    def ask(self, action: str, **arguments: Any) -> Any:
        """Send a request and return the reply; a dict with `failure` if it failed, crashed or timed out."""
        self.trials += 1
        if self._trial is None or self._trial.result is not None:
            spec = TrialSpec(target=_PROGRAM, params=self.params, limits=self.limits, variables=self.variables)
            self._trial = Trial(spec, self.folder / f"trial-{self.trials}")
        if not self._trial.ready():
            result = self._trial.wait()
            self._trial = None
            return {"failure": f"{result.kind}: {result.reason}", "setup": True}
        reply = self._trial.request(action=action, **arguments)
        if reply is None:
            result = self._trial.wait()
            self._trial = None
            return {"failure": f"{result.kind}: {result.reason}"}
        return reply

    def close(self) -> None:
        """End the child process."""
        if self._trial is not None:
            self._trial.cancel()
            self._trial = None


def verify_workload(  # noqa: PLR0913 - all of them keywords
    workload: str,
    *,
    plan: Plan,
    forms: Sequence[str] = (),
    seeds: int = 3,
    scales: Sequence[float] = (1.0, 16.0),
    tolerance: Mapping[str, Any],
    grad: bool = False,
    limits: Limits | None = None,
    bisect: bool = False,
    on_status: Progress = lambda _: None,
) -> VerifyReport:
    """Check every form of a workload, or the given ones; with `bisect`, find what makes the first wrong compiled form wrong."""
    params = {
        "workload": workload,
        "plan": encode(plan),
        "grad": grad,
        "seeds": seeds,
        "scales": list(scales),
        "tolerance": dict(tolerance),
    }
    with tempfile.TemporaryDirectory(prefix="rocsolid-verify-") as folder:
        bench = Bench(params, limits or Limits(), Path(folder), on_status)
        try:
            on_status("eager and the reference")
            about = bench.ask("describe")
            if "failure" in about:
                msg = f"{workload} cannot be run: {about['failure']}"
                raise CannotRunError(msg)
            checks = []
            for form in forms or about["forms"]:
                on_status(f"checking {form}")
                reply = bench.ask("check", form=form)
                failed = "failure" in reply and "outputs" not in reply
                checks.append(
                    FormCheck(form=form, failure=reply["failure"]) if failed else decode(FormCheck, reply, "form")
                )
            if bisect:
                checks = _with_bisection(bench, checks)
        finally:
            bench.close()
    return VerifyReport(
        name=workload,
        machine=about["machine"],
        reference=about["reference"],
        forms=tuple(checks),
        notes=tuple(about["notes"]),
    )


def _with_bisection(bench: Bench, checks: Sequence[FormCheck]) -> list[FormCheck]:
    wrong = next((c for c in checks if c.verdict is Accuracy.WRONG and c.form.startswith("compiled")), None)
    if wrong is None:
        return list(checks)
    bench.close()
    # An empty cache: a cached kernel would be used although the trial has switched off what made it.
    variables = {"TORCHINDUCTOR_CACHE_DIR": str(bench.folder / "cache")}
    fresh = replace(bench, folder=bench.folder / "bisect", variables=variables, trials=0)
    try:
        culprit = bisect_compiled(fresh)
    finally:
        fresh.close()
    return [replace(check, culprit=culprit) if check is wrong else check for check in checks]


def bisect_compiled(bench: Bench) -> Culprit:
    """Find the layer, the stage, the operator and the setting that make the compiled model wrong."""
    started, before = time.monotonic(), bench.trials
    layer, whole = _smallest_layer(bench)
    if not whole.get("wrong"):
        detail = "the model is right when it is compiled with an empty cache: the compile cache holds wrong kernels"
        fix = "import shutil, torch\nshutil.rmtree(torch._inductor.codecache.cache_dir())"
        return Culprit(
            detail=whole.get("failure") or detail, fix="" if "failure" in whole else fix, trials=bench.trials
        )
    culprit = Culprit(layer=layer, detail=whole.get("why", ""))
    stage = _first_wrong_stage(bench, layer)
    culprit = replace(culprit, stage=_STAGES[stage], graph=_first_wrong_graph(bench, layer, stage, whole["graphs"]))
    if stage in ("inductor", "aot_eager_decomp_partition"):
        subsystem = "lowerings" if stage == "inductor" else "decomposition"
        found = _first_wrong_part(bench, layer, stage, subsystem)
        if found is not None:
            kernel = next((name for name in whole.get("kernels", ()) if _base_name(found[0]) in name), "")
            culprit = replace(culprit, op=found[0], location=found[1], kernel=kernel)
    setting = _fixing_setting(bench, layer) if stage == "inductor" else None
    culprit = replace(
        culprit, setting=f"{setting[0]}={setting[1]!r}" if setting else "", fix=_fix(bench, layer, setting)
    )
    return replace(culprit, trials=bench.trials - before, seconds=time.monotonic() - started)


def _smallest_layer(bench: Bench) -> tuple[str, dict[str, Any]]:
    """Return the smallest module that is wrong when it is compiled alone, and how it was wrong; "" is the whole model."""
    layer: str = ""
    found: dict[str, Any] = {}
    while True:
        for child in _list(bench.ask("modules", inside=layer)):
            bench.on_status(f"bisecting: module {child}")
            reply = bench.ask("part", layer=child)
            if reply.get("wrong"):
                layer, found = child, reply
                break
        else:
            return layer, found or bench.ask("part", layer="")


def _list(reply: Any) -> list[str]:
    return reply if isinstance(reply, list) else []


def _first_wrong_stage(bench: Bench, layer: str) -> str:
    for stage in _STAGES:
        bench.on_status(f"bisecting: stage {stage}")
        if stage == "inductor" or bench.ask("part", layer=layer, backend=stage).get("wrong"):
            return stage
    return "inductor"


def _first_wrong_graph(bench: Bench, layer: str, stage: str, graphs: int) -> str:
    """Return the graph that makes the part wrong when it alone is compiled, such as `2 of 3`; "" if there is only one graph, or none does."""
    for number in range(graphs if graphs > 1 else 0):
        bench.on_status(f"bisecting: graph {number + 1} of {graphs}")
        if bench.ask("part", layer=layer, backend=stage, graph=number).get("wrong"):
            return f"{number + 1} of {graphs}"
    return ""


def _first_wrong_part(bench: Bench, layer: str, backend: str, subsystem: str) -> tuple[str, str] | None:
    """Return the operator with which the result becomes wrong, and the user's line; None if the result is wrong without any."""

    def wrong_with(limit: int) -> tuple[bool, list[Any]]:
        bench.on_status(f"bisecting: {subsystem}, the first {limit}")
        reply = bench.ask("part", layer=layer, backend=backend, subsystem=subsystem, limit=limit)
        return bool(reply.get("wrong")), reply.get("parts", [])

    wrong, parts = wrong_with(0)
    if wrong or not parts:
        return None
    low, high = 0, len(parts)  # right with `low`, wrong with `high`
    while high - low > 1:
        middle = (low + high) // 2
        wrong, names = wrong_with(middle)
        parts = names or parts
        low, high = (low, middle) if wrong else (middle, high)
    name, location = parts[high - 1]
    return name, location


def _fixing_setting(bench: Bench, layer: str) -> tuple[str, Any] | None:
    """Return the first setting with which the part is right; None if it is wrong even with all of them."""
    bench.on_status("bisecting: all settings at once")
    if bench.ask("part", layer=layer, settings=dict(_SETTINGS)).get("wrong") is not False:
        return None
    for name, value in _SETTINGS.items():
        bench.on_status(f"bisecting: {name}={value}")
        reply = bench.ask("part", layer=layer, settings={name: value})
        if reply.get("wrong") is False:
            return name, value
    return None


def _fix(bench: Bench, layer: str, setting: tuple[str, Any] | None) -> str:
    """Return the smallest change with which the whole compiled model is right, as code."""
    if setting is not None and bench.ask("part", layer="", settings={setting[0]: setting[1]}).get("wrong") is False:
        return f'model = torch.compile(model, options={{"{setting[0].removeprefix("inductor.")}": {setting[1]!r}}})'
    if layer and bench.ask("part", layer="", leave_out=layer).get("wrong") is False:
        path = _python_path(layer)
        return f"model{path}.forward = torch.compiler.disable(model{path}.forward)\nmodel = torch.compile(model)"
    return ""


def _python_path(layer: str) -> str:
    return "".join(f"[{part}]" if part.isdigit() else f".{part}" for part in layer.split("."))


def _base_name(op: str) -> str:
    """Return `gelu` for `aten.gelu.default`."""
    return op.split(".")[1].strip("_") if "." in op else op
