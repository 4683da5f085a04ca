"""The program that runs in a child process for `rocsolid verify`: checks forms, and compiles parts of the model for a bisection.

It may hang or crash; `workload.py` then starts another one.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import torch

from rocsolid.catalog.capture_precautions import precautions_for
from rocsolid.errors import first_line
from rocsolid.measure.load_workload import load_workload
from rocsolid.model.codec import decode, encode
from rocsolid.model.form import Form
from rocsolid.model.plan import Plan
from rocsolid.model.verify_report import Accuracy
from rocsolid.numerics import Tolerance
from rocsolid.observe.recorder import CompileRecorder
from rocsolid.optimize.example_inputs import Example
from rocsolid.optimize.optimized import available_forms, device_and_versions
from rocsolid.probe.quick_facts import quick_environment
from rocsolid.reference import operator_references
from rocsolid.runtime.capture.captured import Captured
from rocsolid.runtime.capture.options import Options
from rocsolid.runtime.compiled import compile_with_plan
from rocsolid.torchapi.config.scope import settings_scope
from rocsolid.torchapi.dispatch import DispatchMode
from rocsolid.torchapi.inductor.bisector import limited, only_graph, reset_compiler
from rocsolid.tune.isolate.trial_process import Reporter
from rocsolid.verify.candidate import Baseline, Cases, measure_baseline, with_culprit

VENDOR_OPS = "vendor ops"
RECORDED = "eager + graph (recorded)"


def serve(
    reporter: Reporter,
    *,
    workload: str,
    plan: Mapping[str, Any],
    grad: bool,
    seeds: int,
    scales: Sequence[float],
    tolerance: Mapping[str, Any],
) -> None:
    """Load the workload, run eager and the reference, then answer requests until the parent closes the trial."""
    reporter.phase("build")
    torch.set_grad_enabled(grad)
    loaded = load_workload(workload)
    example = Example(loaded.args, loaded.kwargs)
    cases = Cases(seeds=seeds, scales=tuple(scales))
    bench = _Bench(loaded.callable, example, decode(Plan, dict(plan), "plan"), cases, Tolerance(**tolerance))
    reporter.serve(bench.answer)


class _Bench:
    """The workload and everything that is known about it in this process."""

    def __init__(
        self, model: Callable[..., Any], example: Example, plan: Plan, cases: Cases, tolerance: Tolerance
    ) -> None:
        self._model, self._example, self._plan = model, example, plan
        self._cases, self._tolerance = cases, tolerance
        self._baseline: Baseline = measure_baseline(model, [example], cases, tolerance)
        self._inputs: dict[str, Example] = {}  # of each module, from eager

    def answer(self, request: Mapping[str, Any]) -> Any:
        """Do what a request asks for. An error becomes part of the reply: only a crash or a hang ends the process."""
        arguments = {name: value for name, value in request.items() if name not in ("t", "action")}
        try:
            return getattr(self, f"do_{request['action']}")(**arguments)
        except Exception as error:  # noqa: BLE001 - whatever a compiler raises
            return {"failure": f"{type(error).__name__}: {first_line(error)}"}

    def do_describe(self) -> dict[str, Any]:
        """Return the forms and the facts about eager."""
        forms = [form.label for form in self._forms() if form is not Form.EAGER]
        if not self._on_device:
            forms.append(RECORDED)
        if operator_references():
            forms.append(VENDOR_OPS)
        return {
            "forms": forms,
            "machine": device_and_versions(),
            "reference": self._baseline.reference_name,
            "notes": list(self._baseline.notes),
            "random": self._baseline.draws_random,
        }

    @property
    def _on_device(self) -> bool:
        return any(
            x.is_cuda for x in (*self._example.args, *self._example.kwargs.values()) if isinstance(x, torch.Tensor)
        )

    def _forms(self) -> Mapping[Form, Callable[[], Callable[..., Any]]]:
        def capture(function: Callable[..., Any]) -> Captured:
            return Captured(function, Options(), precautions_for(quick_environment()))

        return available_forms(self._model, self._plan, capture if self._on_device else None, None)

    def do_check(self, form: str) -> Any:
        """Compare one form with eager and the reference."""
        reset_compiler()
        with settings_scope({"inductor.fallback_random": True} if self._baseline.draws_random else {}):
            if form == VENDOR_OPS:  # here the model itself is the candidate
                baseline = measure_baseline(
                    _without_vendor_ops(self._model), [self._example], self._cases, self._tolerance
                )
                return encode(with_culprit(baseline.check(form, self._model), baseline, self._model))
            if form == RECORDED:
                candidate: Callable[..., Any] = Captured(self._model, Options(backend="record"))
            else:
                candidate = self._forms()[next(f for f in Form if f.label == form)]()
            check = self._baseline.check(form, candidate)
            return encode(
                with_culprit(check, self._baseline, self._model if isinstance(candidate, Captured) else candidate)
            )

    def do_modules(self, inside: str) -> list[str]:
        """Return the modules inside another one, in the order in which eager calls them; lists of modules are opened."""
        if not self._inputs:
            self._record_inputs()
        depth = f"{inside}." if inside else ""

        def is_child(name: str) -> bool:
            if not name.startswith(depth) or name == inside:
                return False
            above = name.rpartition(".")[0]
            while above != inside and above and above not in self._inputs:
                above = above.rpartition(".")[0]  # a ModuleList is not called
            return above == inside

        return [name for name in self._inputs if is_child(name)]

    def _record_inputs(self) -> None:
        if not isinstance(self._model, torch.nn.Module):
            return

        def hook(name: str) -> Callable[..., None]:
            def store(_module: Any, args: Any, kwargs: Any) -> None:
                self._inputs.setdefault(name, Example(_copied(args), _copied(kwargs)))

            return store

        named = [(name, module) for name, module in self._model.named_modules() if name]
        handles = [module.register_forward_pre_hook(hook(name), with_kwargs=True) for name, module in named]
        try:
            torch.manual_seed(0)
            self._example.run(self._model)
        finally:
            for handle in handles:
                handle.remove()

    def do_part(
        self,
        layer: str = "",
        backend: str = "inductor",
        settings: Mapping[str, Any] | None = None,
        subsystem: str = "lowerings",
        limit: int | None = None,
        leave_out: str = "",
        graph: int | None = None,
    ) -> dict[str, Any]:
        """Compile one module, with its inputs in eager, and compare it with eager; the whole model with an empty `layer`.

        With `graph`, only the graph with this number is compiled.
        """
        module = self._model.get_submodule(layer) if layer and isinstance(self._model, torch.nn.Module) else self._model
        cases = Cases(seeds=1, scales=(1.0,))
        if layer and not self._inputs:
            self._record_inputs()
        own = measure_baseline(module, [self._inputs[layer]], cases, self._tolerance) if layer else None
        baseline = own or self._baseline
        reset_compiler()
        with ExitStack() as stack:
            stack.enter_context(
                settings_scope(
                    {**({"inductor.fallback_random": True} if baseline.draws_random else {}), **(settings or {})}
                )
            )
            parts = stack.enter_context(limited(subsystem, limit))
            recorder = stack.enter_context(CompileRecorder())
            if leave_out:
                stack.enter_context(_left_out(self._model, leave_out))
            if graph is not None:
                compiled = torch.compile(module, backend=only_graph(graph, backend))
            elif backend == "inductor":
                compiled = compile_with_plan(self._plan, module)
            else:
                compiled = torch.compile(module, backend=backend)
            check = baseline.check("compiled", compiled)
            kernels = [kernel.name for graph in recorder.graphs for kernel in graph.kernels]
        return {
            "wrong": check.verdict is Accuracy.WRONG,
            "verdict": check.verdict.value,
            "why": next((output.why for output in check.outputs if output.verdict is check.verdict), ""),
            "error": max((output.difference.relative_l2 for output in check.outputs), default=0.0),
            "parts": [list(part) for part in parts],
            "kernels": kernels,
            "graphs": len(recorder.graphs),
        }


def _copied(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().clone().requires_grad_(value.requires_grad and value.is_leaf)
    if isinstance(value, (list, tuple)):
        return type(value)(_copied(item) for item in value)
    return {name: _copied(item) for name, item in value.items()} if isinstance(value, dict) else value


class _left_out:  # noqa: N801 - used like a function
    """Runs one module in eager inside a compiled model."""

    def __init__(self, model: Any, layer: str) -> None:
        self._module = model.get_submodule(layer)

    def __enter__(self) -> None:
        vars(self._module)["forward"] = torch.compiler.disable(self._module.forward)

    def __exit__(self, *_: object) -> None:
        del vars(self._module)["forward"]


class _VendorOpsOff(DispatchMode):
    """Runs the reference of each vendor operator instead of the operator."""

    def dispatch(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run an operator, or its reference."""
        return operator_references().get(func, func)(*args, **kwargs)


def _without_vendor_ops(model: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        with _VendorOpsOff():
            return model(*args, **kwargs)

    return call
