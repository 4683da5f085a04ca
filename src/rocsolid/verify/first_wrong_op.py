"""Finds the first operator whose result differs, by comparing the operators that eager and a candidate run."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, Final

import torch

from rocsolid.model.verify_report import Culprit
from rocsolid.numerics import is_wrong_step
from rocsolid.torchapi.dispatch import DispatchMode, only_allocates
from rocsolid.torchapi.graphs.replay_checks import storage_id
from rocsolid.torchapi.pytree import leaves
from rocsolid.torchapi.user_frames import user_code_line

_MAX_BYTES: Final = 4 << 30  # of recorded results


@dataclass(frozen=True)
class Step:
    """One operator that ran."""

    op: str
    results: tuple[Any, ...]
    location: str
    layer: str
    sources: tuple[int, ...]  # indices of the steps that made its inputs

    @property
    def key(self) -> tuple[str, tuple[Any, ...]]:
        """What must be equal so that two steps are compared."""
        return self.op, tuple(tuple(result.shape) for result in self.results)


class OpTrace(DispatchMode):
    """Records every operator with its results, the module it runs in and the user's line."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.steps: list[Step] = []
        self._bytes = 0
        self._makers: dict[
            int, tuple[int, Any]
        ] = {}  # storage id -> (last step that wrote to it, a tensor that keeps it alive)
        self._layers: list[str] = []
        self._names = (
            {id(m): name for name, m in function.named_modules()} if isinstance(function, torch.nn.Module) else {}
        )

    def __enter__(self) -> "OpTrace":
        super().__enter__()  # raises on a torch that lacks dispatch modes
        self._hooks = [
            torch.nn.modules.module.register_module_forward_pre_hook(self._enter_module),
            torch.nn.modules.module.register_module_forward_hook(self._leave_module, always_call=True),
        ]
        return self

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        for hook in self._hooks:
            hook.remove()

    def _enter_module(self, module: Any, _args: Any) -> None:
        self._layers.append(self._names.get(id(module)) or (self._layers[-1] if self._layers else ""))

    def _leave_module(self, _module: Any, _args: Any, _result: Any) -> None:
        if self._layers:
            self._layers.pop()

    def dispatch(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run an operator, and record it."""
        inputs = [x for x in leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        makers = (self._makers.get(storage_id(x)) for x in inputs if x.layout is torch.strided)
        sources = tuple(dict.fromkeys(maker[0] for maker in makers if maker))
        result = func(*args, **kwargs)
        if only_allocates(func) or func.name() == "aten::detach" or self._bytes > _MAX_BYTES:
            return result
        tensors = [
            x for x in (result if isinstance(result, (tuple, list)) else (result,)) if isinstance(x, torch.Tensor)
        ]
        strided = [x for x in tensors if x.layout is torch.strided and x.device.type != "meta"]
        copies = tuple(x.detach().clone() for x in strided)
        self._bytes += sum(x.nbytes for x in copies)
        self._makers.update({storage_id(x): (len(self.steps), x) for x in strided})
        line = user_code_line()
        location = f"{line.file}:{line.line}: {line.text.strip()}" if line else ""
        self.steps.append(Step(str(func), copies, location, self._layers[-1] if self._layers else "", sources))
        return result


def find_first_wrong_op(
    run: Callable[[Callable[..., Any]], object], model: Callable[..., Any], candidate: Callable[..., Any]
) -> Culprit | None:
    """Return the first operator of the candidate whose result differs from eager's; None if torch cannot see its operators."""
    traces = []
    for function in (model, candidate):
        trace = OpTrace(function)

        def traced(*args: Any, _function: Any = function, _trace: OpTrace = trace, **kwargs: Any) -> Any:
            with _trace:
                return _function(*args, **kwargs)

        with suppress(Exception):  # it may fail after the first wrong operator
            run(traced)
        traces.append(trace.steps)
    return first_difference(*traces)


def first_difference(eager: Sequence[Step], candidate: Sequence[Step]) -> Culprit | None:
    """Align the operators of both, and return the first one of the candidate that is wrong."""
    matched: tuple[set[int], set[int]] = (set(), set())  # steps of both sides with equal results
    matcher = SequenceMatcher(None, [step.key for step in eager], [step.key for step in candidate], autojunk=False)
    for block in matcher.get_matching_blocks():
        for offset in range(block.size):
            here = (block.a + offset, block.b + offset)
            if _is_wrong(eager[here[0]], candidate[here[1]]):
                fused = _later_with_its_result(eager, here[0], candidate[here[1]])
                if fused is not None:
                    matched[0].add(fused)
                    matched[1].add(here[1])
                    continue
                missing, added = (
                    _unmatched_sources(steps, i, seen)
                    for steps, i, seen in zip((eager, candidate), here, matched, strict=True)
                )
                return _culprit(missing, added, candidate[here[1]])
            matched[0].add(here[0])
            matched[1].add(here[1])
    missing, added = (
        _unmatched_sources(steps, len(steps) - 1, seen, itself=True)
        for steps, seen in zip((eager, candidate), matched, strict=True)
    )
    return _culprit(missing, added, None)


def _is_wrong(eager: Step, candidate: Step) -> bool:
    return any(is_wrong_step(b, a) for a, b in zip(eager.results, candidate.results, strict=True))


def _later_with_its_result(eager: Sequence[Step], index: int, candidate: Step) -> int | None:
    """Return the later step of eager whose first result the candidate's step already has, as a convolution with folded batch norm."""
    if len(candidate.results) != 1 or candidate.results[0].numel() == 1:
        return None
    (got,) = candidate.results
    later = ((i, eager[i].results[0]) for i in range(index + 1, len(eager)) if eager[i].results)
    return next((i for i, want in later if want.shape == got.shape and not is_wrong_step(got, want)), None)


def _unmatched_sources(steps: Sequence[Step], index: int, matched: set[int], *, itself: bool = False) -> list[Step]:
    """Return the steps that a step depends on and that have no counterpart with the same result, in order."""
    found = {index} if itself and steps and index not in matched else set()
    waiting = [index] if steps else []
    while waiting:
        for source in steps[waiting.pop()].sources:
            if source not in matched and source not in found:
                found.add(source)
                waiting.append(source)
    return [steps[i] for i in sorted(found)]


def _culprit(missing: Sequence[Step], added: Sequence[Step], candidate: Step | None) -> Culprit | None:
    """Return the culprit: an operator that only one side runs before the first wrong result, otherwise the one with the wrong result."""
    suspects = added or missing or ([candidate] if candidate else [])
    if not suspects:
        return None
    step = suspects[0]
    names = ", ".join(dict.fromkeys(step.op for step in suspects))
    if added and missing:
        detail = f"the candidate runs {names}, eager runs {', '.join(dict.fromkeys(s.op for s in missing))}"
    elif added:
        detail = f"only the candidate runs {names}"
    elif missing:
        detail = f"only eager runs {names}"
    else:
        detail = "eager runs this operator, too, but here it gets other inputs or returns another result"
    if candidate is not None and (added or missing):
        detail += f"; of the operators that both run, {candidate.op} is the first with a wrong result"
    return Culprit(layer=step.layer, op=names, location=step.location, detail=detail, fix=_fix(step))


def _fix(step: Step) -> str:
    namespace = step.op.partition(".")[0]
    if namespace not in ("aten", "prims"):
        return f"# use its reference instead of {step.op}, or leave it out"
    return ""
