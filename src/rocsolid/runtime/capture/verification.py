"""Compares replays with eager, on inputs that the graph was not captured with. A graph that differs is not used."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from rocsolid.model.capture_report import CheckFailure, Reason
from rocsolid.model.log import log as _log
from rocsolid.numerics import (
    OTHER_BRANCH_SCALE,
    PADDING_SCALE,
    Comparison,
    Tolerance,
    compare,
    noise_between,
    result_leaves,
)
from rocsolid.runtime.capture.call import Call, CannotCapture, spec_of
from rocsolid.runtime.capture.entry import Entry
from rocsolid.runtime.capture.inputs import Buffer, PaddedBuffer
from rocsolid.runtime.capture.options import Options, Verify
from rocsolid.runtime.capture.state_snapshot import InitialState, RngSnapshot, TensorSnapshot, WriteDetector
from rocsolid.torchapi.graphs.capture_state import uncompiled
from rocsolid.torchapi.pytree import CallResult, Leaf

_SEED = 0x5EED
_WRONG_RESULT_CAUSES = (
    "why: a Python number or a value read on the CPU became a constant of the graph, a buffer is stale, "
    "work on another stream was left out, or graph replay is broken on this platform"
)


class Verifier:
    """The comparisons before a graph's first result is returned."""

    def __init__(self, function: Callable[..., Any], call: Call, options: Options, initial: InitialState) -> None:
        self._function = function
        self._call = call
        self._rounds = options.verify.rounds
        self._tolerance = options.tolerance
        self._initial = initial
        self._generator = torch.Generator(device=call.device).manual_seed(_SEED)

    def verify(self, entry: Entry) -> None:
        """Compare `verify.rounds` times. Raises a CannotCapture that names the result and its error."""
        originals = self._originals(entry)
        for verify_round in range(self._rounds):
            inputs = [vary_input(tensor, self._generator) for tensor in originals]
            if verify_round == 0 and self._call.bucketed:
                self._check_padding(entry, inputs)
            started = time.perf_counter()
            try:
                comparison = self._compare(entry, inputs)
            except CannotCapture:
                raise
            except Exception:  # noqa: BLE001 - the function does not allow these values: compare with those of the call
                comparison = self._compare(entry, list(map(_copy, originals)))
            entry.stats.record_check(comparison.error)
            entry.stats.record_check_time(started)
            refuse_wrong_result(comparison)

    def _originals(self, entry: Entry) -> list[Any]:
        """Return the tensors of the call as they were before it: the call may have filled a cache among them to its last place."""
        self._initial.restore()
        tensors = [leaf.value for leaf in self._call.tensors]
        with torch.no_grad():
            for index in entry.written_arguments:
                before = Buffer(spec_of(tensors[index]))
                before.copy_in(entry.static_inputs[index][tuple(map(slice, tensors[index].shape))])
                tensors[index] = before.tensor.requires_grad_(tensors[index].requires_grad)
        return tensors

    def _compare(self, entry: Entry, inputs: Sequence[Any]) -> Comparison:
        eager = self._run_eager(entry, inputs)
        self._initial.restore()
        replayed = result_leaves(entry.replay_on(inputs, self._call.lengths_by_group))
        got = [*replayed, *_written_state(entry), *_written_arguments(entry, entry.static_inputs)]
        comparison = compare(eager, got, self._tolerance)
        if comparison.equal:
            return comparison
        noise = noise_between(eager, self._run_eager(entry, inputs))
        comparison = compare(eager, got, self._tolerance, noise)
        return (
            comparison if comparison.equal else self._compare_with_capture_branch(entry, inputs, eager, got, comparison)
        )

    def _compare_with_capture_branch(
        self, entry: Entry, inputs: Sequence[Any], eager: Sequence[Leaf], got: Sequence[Leaf], comparison: Comparison
    ) -> Comparison:
        """Compare with eager on the branch that the function takes during a capture.

        Some libraries check whether they are being captured, and then use other kernels. The results of both branches must be close.
        """
        with entry.as_captured():
            branch = self._run_eager(entry, inputs)
        same_branch = compare(branch, got, self._tolerance)
        usual_branch = compare(eager, got, self._tolerance, scale=OTHER_BRANCH_SCALE)
        if not same_branch.equal or not (usual_branch.equal or self._as_accurate(entry, inputs, got, eager)):
            return comparison
        entry.stats.record_branch()
        return same_branch

    def _as_accurate(self, entry: Entry, inputs: Sequence[Any], got: Sequence[Leaf], eager: Sequence[Leaf]) -> bool:
        """Return whether results of other kernels than eager's are as accurate as eager's, compared with higher precision."""
        from rocsolid.reference import NoReference, Referee

        self._initial.restore()
        ran = self._run_reference(padded_copies(self._call, inputs))
        self._initial.restore()
        if isinstance(ran, NoReference) or entry.writes:
            return False
        reference = entry.outputs.unpad(ran.leaves, self._call.lengths_by_group)
        referee = Referee(lambda: reference, self._tolerance)
        return all(check.verdict.passes for check in referee.judge(got, eager))

    def _run_eager(self, entry: Entry, inputs: Sequence[Any]) -> list[Leaf]:
        """Run in eager on padded copies of the inputs. Returns results, written state and written arguments."""
        padded = padded_copies(self._call, inputs)
        self._initial.restore()
        leaves = _copied(result_leaves(self._call.run(self._function, padded)))
        unpadded = entry.outputs.unpad(leaves, self._call.lengths_by_group)
        return [*unpadded, *_written_state(entry), *_written_arguments(entry, padded)]

    def _check_padding(self, entry: Entry, inputs: Sequence[Any]) -> None:
        """Compare the unpadded result of the padded call with the result of the call without padding, both in eager."""
        inputs, lengths = self._shorter_than_buckets(inputs)
        compared = [index for index, (kind, _) in enumerate(entry.outputs.plan) if kind != "input"]
        with uncompiled():
            self._initial.restore()
            plain = [tensor.clone() for tensor in inputs]
            leaves = _copied(result_leaves(self._call.run(self._function, plain)))
            expected = [*(leaves[i] for i in compared), *_written_state(entry), *_written_arguments(entry, plain)]
            self._initial.restore()
            padded = padded_copies(self._call, inputs)
            leaves = _copied(result_leaves(self._call.run(self._function, padded)))
            leaves = tuple(entry.outputs.unpad(leaves, lengths))
            unpadded = [tensor[tuple(map(slice, x.shape))] for tensor, x in zip(padded, inputs, strict=True)]
            got = [*(leaves[i] for i in compared), *_written_state(entry), *_written_arguments(entry, unpadded)]
        tolerance = self._tolerance
        scale = PADDING_SCALE if tolerance.rtol is None else 1.0
        comparison = compare(expected, got, tolerance, scale=scale)
        if not comparison.equal and not self._padding_as_accurate(entry, inputs, compared, got, expected):
            sizes = ", ".join(f"`{self._call.tensors[d.tensor].path}` to {d.size}" for d in self._call.bucketed)
            raise CannotCapture(
                Reason.PADDING,
                f"padding ({sizes}) changes the result: {'; '.join(comparison.mismatches)}",
                fix="pass a mask and exclude the padding in the function, or capture without buckets=",
            )

    def _padding_as_accurate(
        self,
        entry: Entry,
        inputs: Sequence[Any],
        compared: Sequence[int],
        got: Sequence[Leaf],
        expected: Sequence[Leaf],
    ) -> bool:
        """Return whether the padded call, for which other kernels may run, is as accurate as the call without padding."""
        from rocsolid.reference import NoReference, Referee

        if entry.writes:
            return False
        ran = self._run_reference([tensor.clone() for tensor in inputs])
        self._initial.restore()
        if isinstance(ran, NoReference) or len(ran.leaves) <= max(compared, default=-1):
            return False
        referee = Referee(lambda: [ran.leaves[index] for index in compared], self._tolerance)
        return all(check.verdict.passes for check in referee.judge(got, expected))

    def _run_reference(self, tensors: Sequence[Any]) -> Any:
        from rocsolid.reference import run_in_higher_precision

        function = partial(self._call.run_reference, self._function) if self._call.parts else self._function
        args, kwargs = self._call.rebuild(tensors)
        return run_in_higher_precision(function, args, kwargs, on_run=self._initial.restore)

    def _shorter_than_buckets(self, inputs: Sequence[Any]) -> tuple[list[Any], dict[int, int]]:
        """Return the inputs and lengths; if a length is that of its bucket, one less, so that something is padded."""
        shorter, lengths = list(inputs), self._call.lengths_by_group
        for dim in self._call.bucketed:
            if dim.length == dim.size and dim.size > 1:
                shorter[dim.tensor] = shorter[dim.tensor].narrow(dim.dim, 0, dim.size - 1)
                lengths[dim.group] = dim.size - 1
        return shorter, lengths


def refuse_wrong_result(comparison: Comparison) -> None:
    """Raise CannotCapture when the results of a graph differ from eager."""
    if not comparison.equal:
        raise wrong_result(comparison)


def wrong_result(comparison: Comparison) -> CannotCapture:
    """Return the refusal of a graph whose results differ from eager."""
    mismatches = "; ".join(comparison.mismatches)
    if comparison.nondeterministic:
        return CannotCapture(
            Reason.WRONG_RESULT,
            f"the function is not deterministic: {mismatches}",
            fix="pass its random number generators as generators=[...], "
            "or leave the result out of the comparison: verify=rs.every(1000, ignore=['result[1]'])",
        )
    return CannotCapture(
        Reason.WRONG_RESULT,
        f"the replay returns wrong results: {mismatches}",
        notes=(_WRONG_RESULT_CAUSES,),
        fix="pass values that change as tensors",
    )


def check_replay(
    function: Callable[..., Any], entry: Entry, call: Call, tolerance: Tolerance, generators: Sequence[Any]
) -> tuple[Any, Comparison]:
    """Run a call in eager and compare a replay with it. Returns eager's result and the comparison."""
    initial = InitialState(
        tensors=TensorSnapshot([tensor for _, tensor in entry.written_state]),
        rng=RngSnapshot(call.device, generators),
        inputs=TensorSnapshot([call.tensors[index].value for index in entry.written_arguments]),
    )
    tensors = [leaf.value for leaf in call.tensors]
    before = {index: tensors[index].detach().clone() for index in entry.written_arguments}
    lengths = call.lengths_by_group
    got = [*result_leaves(entry.replay_on(tensors, lengths)), *_written_state(entry)]
    got += _written_arguments(entry, entry.static_inputs)
    branch = None
    if entry.stats.branches_on_capture:
        initial.restore()
        branch = _run_capture_branch(function, entry, call, tensors)
    initial.restore()
    # Run at the padded size, so that a compiled function is not called with a length that it was not compiled for.
    inputs = padded_copies(call, tensors) if call.bucketed else tensors
    args, kwargs = (call.args, call.kwargs) if call.parts and not call.bucketed else call.rebuild(inputs)
    result = call.run_with(function, args, kwargs)
    leaves = entry.outputs.unpad(result_leaves(result), lengths)
    eager = [*leaves, *_written_state(entry), *_written_arguments(entry, inputs)]
    comparison = compare(branch or eager, got, tolerance)
    if not comparison.equal and not entry.written_state:
        rng_after = RngSnapshot(call.device, generators)
        originals = [before.get(index, tensor) for index, tensor in enumerate(tensors)]
        # Eager may differ from itself: measure by how much before the replay is called wrong.
        initial.rng.restore()
        copies = padded_copies(call, originals)
        again = entry.outputs.unpad(result_leaves(call.run(function, copies)), lengths)
        noise = noise_between(eager, [*again, *_written_arguments(entry, copies)])
        comparison = compare(branch or eager, got, tolerance, noise)
        if not comparison.equal and branch is None:  # other values may show first that the branches round differently
            initial.rng.restore()
            on_branch = compare(_run_capture_branch(function, entry, call, originals), got, tolerance)
            if on_branch.equal and compare(eager, got, tolerance, scale=OTHER_BRANCH_SCALE).equal:
                entry.stats.record_branch()
                comparison = on_branch
        rng_after.restore()
    if not comparison.equal:
        inputs = [Leaf(leaf.path, before.get(index, leaf.value)) for index, leaf in enumerate(call.tensors)]
        comparison = replace(comparison, inputs=_copied(inputs), expected=_copied(eager), got=_copied(got))
    if call.bucketed:
        result = _unpadded_result(entry, leaves, call.inputs, inputs)
    result = result.value if isinstance(result, CallResult) else result
    entry.stats.record_check(comparison.error)
    return result, comparison


class LaterCheck:
    """A comparison of a replay with eager that runs in another thread, after the replay's result was returned."""

    def __init__(self, function: Callable[..., Any], entry: Entry, call: Call, tolerance: Tolerance) -> None:
        self._function, self._entry, self._call, self._tolerance = function, entry, call, tolerance
        self._state = WriteDetector(("", tensor) for tensor in entry.captured_state.tensors)
        self._inputs = padded_copies(call, [leaf.value for leaf in call.tensors])
        self._got: Sequence[Leaf] = ()
        self._modes = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
        self._stream = torch.cuda.current_stream(call.device) if call.device.type == "cuda" else None

    @property
    def possible(self) -> bool:
        """Whether the call can be repeated in another thread: it changes nothing, and later writes to its state would be noticed."""
        changes = (
            self._call.parts
            or self._entry.check_before_replay
            or self._entry.writes
            or self._entry.training is not None
        )
        special = self._entry.stats.branches_on_capture or torch.get_default_device().type != "cpu"
        autocast = any(torch.is_autocast_enabled(kind) for kind in ("cpu", self._call.device.type))
        return not (changes or special or autocast or self._state.written())

    def keep_result(self, result: Any) -> None:
        """Copy the result of the replay, which the caller may write to."""
        self._got = _copied(result_leaves(result))

    def compare(self) -> Comparison | None:
        """Run in eager and compare. Returns None if something that the function reads was changed since the replay."""
        with self._caller_modes():
            eager = self._run_eager()
            comparison = compare(eager, self._got, self._tolerance)
            if not comparison.equal:
                comparison = compare(eager, self._got, self._tolerance, noise_between(eager, self._run_eager()))
        if self._entry.stats.closed or self._state.written() or self._entry.captured_state.changes():
            return None
        self._entry.stats.record_check(comparison.error)
        if comparison.equal:
            return comparison
        inputs = [Leaf(leaf.path, value) for leaf, value in zip(self._call.tensors, self._inputs, strict=True)]
        return replace(comparison, inputs=tuple(inputs), expected=_copied(eager), got=tuple(self._got))

    def _run_eager(self) -> list[Leaf]:
        result = self._call.run(self._function, [tensor.clone() for tensor in self._inputs])
        return list(self._entry.outputs.unpad(result_leaves(result), self._call.lengths_by_group))

    @contextmanager
    def _caller_modes(self) -> Iterator[None]:
        """Use the grad mode and the stream of the caller: work on another stream would slow down every graph of the process."""
        grad, inference = self._modes
        stream = torch.cuda.stream(self._stream) if self._stream is not None else nullcontext()
        with torch.inference_mode(inference), torch.set_grad_enabled(grad), stream:
            yield


def _run_capture_branch(function: Callable[..., Any], entry: Entry, call: Call, tensors: Sequence[Any]) -> list[Leaf]:
    """Run in eager on the branch that the function takes during a capture, and return its results."""
    inputs = padded_copies(call, tensors)
    with entry.as_captured():
        leaves = _copied(result_leaves(call.run(function, inputs)))
    return [
        *entry.outputs.unpad(leaves, call.lengths_by_group),
        *_written_state(entry),
        *_written_arguments(entry, inputs),
    ]


def _unpadded_result(entry: Entry, leaves: Sequence[Leaf], tensors: Sequence[Any], padded: Sequence[Any]) -> Any:
    """Return the result of a padded call without padding, and copy written arguments back to the caller's tensors."""
    with torch.no_grad():
        for index in entry.written_arguments:
            target = tensors[index]
            target.copy_(padded[index][tuple(slice(0, size) for size in target.shape)])
    owned = [leaf.value.clone() for leaf, (kind, _) in zip(leaves, entry.outputs.plan, strict=True) if kind == "owned"]
    return entry.outputs.assemble(owned, tensors)


def padded_copies(call: Call, tensors: Sequence[Any]) -> list[Any]:
    """Return copies of a call's tensors, padded like the static inputs."""
    copies = []
    for index, (tensor, spec) in enumerate(zip(tensors, call.specs, strict=True)):
        bucketed = [dim for dim in call.bucketed if dim.tensor == index]
        buffer = PaddedBuffer(spec, bucketed) if bucketed else Buffer(spec)
        with torch.no_grad():
            buffer.copy_in(tensor)
        copies.append(buffer.tensor.requires_grad_(tensor.requires_grad))
    return copies


def _copy(tensor: Any) -> Any:
    """Return a copy of a tensor of the call."""
    buffer = Buffer(spec_of(tensor))
    buffer.copy_in(tensor.detach())
    return buffer.tensor.requires_grad_(tensor.requires_grad)


def _copied(leaves: Sequence[Leaf]) -> tuple[Leaf, ...]:
    return tuple(
        Leaf(leaf.path, leaf.value.detach().clone()) if isinstance(leaf.value, torch.Tensor) else leaf
        for leaf in leaves
    )


def report_failure(name: str, comparison: Comparison, verify: Verify) -> None:
    """Save the inputs and results of a failed check, and call `on_failure`, as `rs.every` was asked to."""
    file = ""
    if verify.save_failures:
        folder = Path(verify.save_failures)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / f"{name.replace('/', '_')}-{time.strftime('%Y%m%d-%H%M%S')}-{time.monotonic_ns()}.pt"
            parts = {"inputs": comparison.inputs, "eager": comparison.expected, "replay": comparison.got}
            values: dict[str, Any] = {
                part: {leaf.path: leaf.value for leaf in leaves} for part, leaves in parts.items()
            }
            torch.save({"function": name, "mismatches": list(comparison.mismatches), **values}, path)
            file = str(path)
            _log.warning("%s: a check failed; its inputs and results are in %s", name, file)
        except (OSError, RuntimeError, TypeError, AttributeError) as error:  # service must go on
            _log.warning("%s: the inputs of a failed check cannot be saved: %s", name, error)
    if verify.on_failure is not None:
        try:
            verify.on_failure(CheckFailure(name=name, mismatches=comparison.mismatches, file=file))
        except Exception:  # noqa: BLE001 - the user's function; the service must go on
            _log.exception("%s: on_failure= raised an error", name)


def _written_state(entry: Entry) -> list[Leaf]:
    return [Leaf(f"state `{path}`", tensor.detach().clone()) for path, tensor in entry.written_state]


def _written_arguments(entry: Entry, tensors: Sequence[Any]) -> list[Leaf]:
    return [Leaf(f"argument {index}", tensors[index].detach().clone()) for index in entry.written_arguments]


def vary_input(tensor: Any, generator: Any) -> Any:
    """Return a different input of the same shape and layout: floats are rolled and scaled, integers stay as they are.

    Integers may be indices, lengths or offsets, and a random one could make a kernel read outside its memory.
    """
    varied = Buffer(spec_of(tensor))
    varied.copy_in(tensor.detach())
    if tensor.is_floating_point() and tensor.numel():
        memory = varied.memory
        shift = int(torch.randint(1, memory.numel() + 1, (1,), generator=generator, device=generator.device))
        noise = torch.rand(memory.shape, generator=generator, device=generator.device).to(memory.device)
        values = memory.float().flatten().roll(shift).reshape(memory.shape)
        all_zero = not bool((values != 0).any())
        # Smaller values of the same sign: a function may not allow others, such as probabilities or table positions.
        memory.copy_(noise / 2 if all_zero else values * (0.5 + noise / 2))
    return varied.tensor.requires_grad_(tensor.requires_grad)
