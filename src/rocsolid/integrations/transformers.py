"""transformers: `model.generate(...)` with a captured prompt and decode step, and where possible with a captured loop body.

`generate` itself is not changed. It gets a static cache instead of a dynamic one, and each call of the model with one new token and that
cache replays a graph. The cache starts small and grows by bucket; each size of cache has its own memory and its own graph, and both are
kept for the next `generate`. Greedy decoding and sampling leave the loop of `generate` after the first token (`decoding.py`), unless
something needs the loop, such as stopping criteria of the user.
"""

import copy
import inspect
import re
import sys
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import torch
from transformers import DynamicCache, EncoderDecoderCache, GenerationMixin, StaticCache
from transformers.cache_utils import StaticLayer, StaticSlidingWindowLayer
from transformers.generation.utils import MULTIMODAL_INPUTS_TO_DROP_OUTSIDE_PREFILL

from rocsolid.errors import UsageError, first_line
from rocsolid.integrations.decoding import (
    Choice,
    TokenStep,
    decode,
    keep_states,
    lengths,
    model_inputs,
    same_inputs,
    token_name,
    why_in_loop,
)  # fmt: skip
from rocsolid.integrations.parts import add_methods
from rocsolid.model.log import log as _log
from rocsolid.model.program_report import ProgramPart, ProgramReport
from rocsolid.numerics import relative_error
from rocsolid.runtime.capture.captured import Captured
from rocsolid.runtime.wrapped_module import WrappedModule, wrap_module

_SMALLEST_BUCKET: Final = 256
_SPARE: Final = 8  # a capture repeats the step after it was done, and writes behind the last token
_MAX_KEPT_CACHES: Final = 8
_MAX_CHOICES: Final = 4  # ways to choose a token that have a graph
_MAX_SEEN: Final = 64
_COMPARED_STEPS: Final = 64  # of the compiled model
_MAX_PREFILL_TOKENS: Final = 1024  # of all rows; a longer prompt keeps the GPU busy without a graph
#: Ways to generate, and why some of them stay in transformers' loop.
_MODES: Final = {
    "greedy_search": "",
    "sample": "",
    "beam_search": "beam search chooses among the beams",
    "beam_sample": "beam sampling chooses among the beams",
    "assisted_generation": "assisted decoding verifies several tokens at a time",
}
_ATTENTION: Final = ("sdpa", "eager")
_HOOK_ARGUMENTS: Final = {"generation_config", "model_kwargs", "generation_mode"}
_ROWS: Final = ("attention_mask", "position_ids")  # what a decode step needs besides the token
_ENCODED: Final = ("encoder_outputs", "attention_mask", "decoder_attention_mask")  # the same, with an encoder
_RESULTS_OF_TOKENS: Final = ("output_hidden_states", "output_attentions")  # results besides the logits
_TOKEN_NDIM: Final = 2  # embeddings have one more
_MASK_NDIM: Final = 2  # one for each query has more
_TOKEN_TYPES: Final = ("token_type_ids", "mm_token_type_ids", "moe_mm_token_type_ids")
#: Kinds of layers whose memory graphs can read and write. Others count their tokens in Python.
_LAYERS: Final = {"StaticLayer", "LinearAttentionLayer", "DummyLayer"}
_ONLY_FOR_PREPARING: Final = ("next_sequence_length", "is_first_iteration", "inputs_embeds")

Capture = Callable[[Callable[..., Any]], Captured]


def is_generator(model: Any) -> bool:
    """Whether this is a model of transformers with `generate`, or one with adapters of peft."""
    return isinstance(model, torch.nn.Module) and (isinstance(model, GenerationMixin) or _has_adapters(model))


def _has_adapters(model: Any) -> bool:
    inside = getattr(getattr(model, "base_model", None), "model", None)
    return type(model).__module__.startswith("peft.") and isinstance(inside, GenerationMixin)


def optimize_generate(
    model: Any,
    capture: Capture,
    *,
    compile_model: Callable[..., Any] | None = None,
    limit: float | None = None,
    devices: Sequence[str] = ("cuda",),
) -> Any:
    """Return the model with a faster `generate`.

    With a `limit`, decode steps use what `compile_model` returns if its logits differ from eager's by at most so much, relative L2. With a
    limit of 0 they have to be bitwise eager's in many steps, and `compile_model(model, exact=True)` is called.
    `devices` are the types of device on which `capture` makes graphs.
    """
    if _has_adapters(model):  # its `generate`, `explain` and `undo` are those of the model inside
        inside = model.base_model.model
        model.base_model.model = optimize_generate(
            inside, capture, compile_model=compile_model, limit=limit, devices=devices
        )
        return model
    if isinstance(model, GeneratingModel):
        model = model.undo()  # optimized again
    hook = inspect.signature(model._prepare_cache_for_generation).parameters  # noqa: SLF001 - where `generate` makes its cache
    if not set(hook) >= _HOOK_ARGUMENTS or not hasattr(StaticLayer(max_cache_len=1), "cumulative_length"):
        msg = (
            "rs.optimize needs transformers 5.17 or later for `generate`: earlier releases keep the length of a static cache in Python.\n"
            "fix: upgrade transformers, or pass example inputs: rs.optimize(model, example)"
        )
        raise UsageError(msg)
    compiled = compile_model(model, exact=limit == 0) if compile_model is not None and limit is not None else None
    compiled_step = None if compiled is None or limit is None else _CompiledStep(model, compiled, limit)
    return wrap_module(_Generation(model, capture, compiled_step, devices), GeneratingModel, ("explain", "undo"))


def is_pipeline(program: Any) -> bool:
    """Whether this is a `transformers.pipeline(...)` with a model of torch."""
    pipelines = sys.modules.get("transformers.pipelines.base")  # not imported for this: that takes long
    return (
        pipelines is not None and isinstance(program, pipelines.Pipeline) and isinstance(program.model, torch.nn.Module)
    )


def optimize_pipeline(pipe: Any, optimize_model: Callable[[Any], Any]) -> Any:
    """Optimize the model of a pipeline in place, and return the pipeline."""

    def explain(_: Any) -> ProgramReport:
        """Return what was optimized, and what was left alone and why."""
        report: ProgramReport = made.explain()
        return replace(report, name=type(pipe).__name__)

    def undo(_: Any) -> Any:
        """Put the plain model back, free the graphs, and return the pipeline."""
        made.undo()
        if pipe.model is made:
            pipe.model = plain
        return pipe

    add_methods(pipe, {"explain": explain, "undo": undo})
    plain = pipe.model
    made = pipe.model = optimize_model(plain)
    return pipe


class GeneratingModel(WrappedModule):
    """A model of transformers whose `generate` replays its decode step; it shares everything else with the model."""

    __slots__ = ()

    def explain(self) -> ProgramReport:
        """Return what was optimized, and what was left alone and why."""
        return self.rocsolid.explain()  # type: ignore[no-any-return]

    def undo(self) -> Any:
        """Free the graphs and return the plain model. From now on this object behaves like it, too."""
        return self.rocsolid.undo()

    def generate(self, *args: Any, **kwargs: Any) -> Any:
        """Generate as transformers does."""
        if kwargs.get("custom_generate") is None:
            return super().generate(*args, **kwargs)  # type: ignore[misc]
        self.rocsolid.count_unchanged("custom_generate= is set")
        return self.__rocsolid_function__.generate(*args, **kwargs)

    def _prepare_cache_for_generation(self, *args: Any, **kwargs: Any) -> Any:
        """Replace the cache that `generate` has made by a static one."""
        prepare = super()._prepare_cache_for_generation  # type: ignore[misc]
        result = prepare(*args, **kwargs)
        given = self.rocsolid.hook.bind(*args, **kwargs).arguments
        self.rocsolid.use_static_cache(given["generation_config"], given["model_kwargs"], given["generation_mode"])
        return result

    def _sample(self, input_ids: Any, *args: Any, **kwargs: Any) -> Any:
        """Decode with one replay per token, or run the loop of transformers."""
        loop, cache = super()._sample, _bucket_cache(kwargs)  # type: ignore[misc]
        choice = None if args or cache is None else cache.choice(input_ids, kwargs)
        if choice is None:
            return _released(loop(input_ids, *args, **kwargs), cache)
        return _released(decode(cache, choice, loop, input_ids, kwargs), cache)

    def _beam_search(self, *args: Any, **kwargs: Any) -> Any:
        """Run the loop of transformers, and give the cache back."""
        return _released(super()._beam_search(*args, **kwargs), _bucket_cache(kwargs))  # type: ignore[misc]

    def _assisted_decoding(self, *args: Any, **kwargs: Any) -> Any:
        """Run the loop of transformers, and give the cache back."""
        return _released(super()._assisted_decoding(*args, **kwargs), _bucket_cache(kwargs))  # type: ignore[misc]

    @property
    def prepare_inputs_for_generation(self) -> Callable[..., Any]:
        """Make room in the cache, and leave the attention mask of a decode step to the graph."""
        original = super().prepare_inputs_for_generation  # type: ignore[misc]

        def prepare(input_ids: Any, *args: Any, **kwargs: Any) -> Any:
            cache = _bucket_cache(kwargs)
            inputs = cache.prepare(input_ids, kwargs) if cache is not None else None
            return original(input_ids, *args, **kwargs) if inputs is None else inputs

        prepare.__wrapped__ = original  # type: ignore[attr-defined]  # `generate` reads its parameters
        return prepare

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.__rocsolid_function__.__reduce_ex__(protocol)  # a copy is a plain model


def _released(result: Any, cache: "_BucketCache | None") -> Any:
    """Give a cache back for the next call, and return the result with the kind of cache that transformers returns."""
    if cache is not None:
        returned = _bucket_cache(vars(result)) if hasattr(result, "past_key_values") else None
        if returned is cache and cache.is_draft:  # the next draft continues with it
            cache.pause()
            return result
        if returned is cache:
            result.past_key_values = cache.as_dynamic()
        cache.release()
    return result


class _Generation:
    """Handles the calls of a `GeneratingModel`, and keeps its static caches and graphs."""

    def __init__(
        self, model: Any, capture: Capture, compiled_step: "_CompiledStep | None", devices: Sequence[str]
    ) -> None:
        self._model = model
        self.capture = capture
        self._compiled_step = compiled_step
        self._devices = devices
        self._lock = threading.Lock()
        #: The parameters of the method in which `generate` makes its cache.
        self.hook = inspect.signature(model._prepare_cache_for_generation)  # noqa: SLF001
        self._empty_layers: list[Any] = []
        self._free: deque[_Slot] = deque()
        self._undone = False
        self._generated = 0  # calls of `generate` with our cache
        self._left: Counter[str] = Counter()  # the others, by reason
        self._closed: dict[str, Counter[str]] = {
            "decode step": Counter(),
            "prefill": Counter(),
        }  # counters of freed graphs
        self._refused = ""  # why the decode step cannot be captured
        #: Calls with our cache: "" for one replay per token, or why they stay in transformers' loop.
        self._paths: Counter[str] = Counter()
        #: Ways to choose a token by their key, the latest last: "" if they may have a graph, or why they cannot have one.
        self._choices: OrderedDict[Hashable, str] = OrderedDict()
        self._seen_choices: deque[Hashable] = deque(maxlen=_MAX_SEEN)
        self.inputs_are_known = False  # the loop's second step was seen to get the inputs that we expected
        #: The model's own way to prepare a decode step would build the attention mask outside of the graph.
        self.plain_inputs = (
            type(model).prepare_inputs_for_generation is GenerationMixin.prepare_inputs_for_generation
            and type(model)._update_model_kwargs_for_generation is GenerationMixin._update_model_kwargs_for_generation  # noqa: SLF001
        )
        #: Why every call stays in transformers' loop.
        self.loop_required = "" if self.plain_inputs else "the model prepares its inputs itself"
        self.result_type: Any = None  # what the model returns
        #: Attributes of modules that are tensors, by module and name, and those that a prompt has replaced, such as `rope_deltas`.
        self._attributes: dict[tuple[Any, str], Any] = {}
        self.replaced: dict[tuple[Any, str], None] = {}
        self._abandoned: deque[_Slot] = deque()  # of caches that were deleted, maybe while the lock was held
        self._seen_prompts: deque[Hashable] = deque(maxlen=_MAX_SEEN)
        self._seen_outputs: deque[Hashable] = deque(maxlen=_MAX_SEEN)  # shapes of the encoder's output

    @property
    def __rocsolid_function__(self) -> Any:
        return self._model

    model = __rocsolid_function__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the model: replay a decode step of `generate`, and run anything else in eager."""
        cache = _bucket_cache(kwargs)
        if cache is not None and not args:
            return cache.call(self._model, kwargs)
        return self._model(*args, **kwargs)

    def count_unchanged(self, why: str) -> None:
        """Count a call of `generate` that transformers handles alone."""
        with self._lock:
            self._left[why] += 1

    def use_static_cache(self, generation_config: Any, model_kwargs: dict[str, Any], mode: Any) -> None:
        """Replace the new dynamic cache in `model_kwargs`, if this call of `generate` can use a static one."""
        draft = _bucket_cache(model_kwargs)
        if draft is not None and draft.belongs_to(self):  # a model that assists another one continues
            generation_config.disable_compile = True
            return
        why = self._why_not(generation_config, model_kwargs, mode)
        if not why:
            try:
                assists = getattr(generation_config, "is_assistant", False)
                cache = _BucketCache(self, assists=assists, is_assisted=mode.value == "assisted_generation")
            except Exception as error:  # noqa: BLE001 - of the model's configuration
                why = f"the model has no static cache: {first_line(error)}"
            else:
                why = cache.unsupported
        if why:
            self.count_unchanged(why)
            return
        with self._lock:
            self._generated += 1
        if _MODES[mode.value]:
            self.count_path(_MODES[mode.value])
        model_kwargs["past_key_values"] = cache.for_generate()
        generation_config.disable_compile = True  # transformers would compile for a static cache

    def _why_not(self, generation_config: Any, model_kwargs: dict[str, Any], mode: Any) -> str:
        """Return why this call of `generate` cannot use a static cache; "" if it can."""
        model = self._model
        attention = {model.config._attn_implementation, model.config.get_text_config()._attn_implementation}  # noqa: SLF001
        reasons = (
            (self._undone, "undo() was called"),
            (self._refused, f"the decode step cannot be captured: {self._refused}"),
            (model.device.type not in self._devices, f"the model is on {model.device}, and graphs need a GPU"),
            (model.training, "the model is in training mode"),
            (len(set(getattr(model, "hf_device_map", {}).values())) > 1, "the model is on several devices"),
            ((getattr(model, "_tp_size", None) or 1) > 1, "the model is split over several GPUs"),
            (mode.value not in _MODES, f"{mode.value} is not known to work with a static cache"),
            (mode.value.startswith("beam") and hasattr(model, "_reorder_cache"), "the model reorders its cache itself"),
            (getattr(generation_config, "assistant_early_exit", None), "assistant_early_exit= changes the model"),
            (getattr(generation_config, "use_mtp", None), "use_mtp= needs what the model computes inside"),
            (generation_config.cache_implementation is not None, "cache_implementation= is set"),
            (generation_config.prefill_chunk_size is not None, "prefill_chunk_size= is set"),
            ("cache_params" in model_kwargs, "its cache is `cache_params`, which holds states alone"),
            (
                type(cache := model_kwargs.get("past_key_values")) not in (DynamicCache, EncoderDecoderCache)
                or getattr(cache, "_is_user_defined", False),
                "generate got its own cache, or uses none",
            ),
            (not attention <= set(_ATTENTION), f"attention {sorted(attention)} reads the mask on the CPU"),
            (not model._can_compile_fullgraph, f"{type(model).__name__} cannot use a static cache"),  # noqa: SLF001
        )
        why = next((reason for applies, reason in reasons if applies), "")
        return why or (self._why_not_encoder(model_kwargs) if model.config.is_encoder_decoder else "")

    def _why_not_encoder(self, model_kwargs: dict[str, Any]) -> str:
        """Return why the decoder of this call cannot use a static cache; "" if it can.

        Its graph reads keys and values of the encoder's output, so it is for one shape of that output. A shape that is new may not come again.
        """
        output = getattr(model_kwargs.get("encoder_outputs"), "last_hidden_state", None)
        if output is None:
            return "there is no output of the encoder"
        with self._lock:
            if output.shape not in self._seen_outputs:
                self._seen_outputs.append(output.shape)
                return "the shape of the encoder's output is new, and gets a graph when it is used again"
        return ""

    def empty_layers(self) -> list[Any]:
        """Return the layers of a static cache that was never used. Making them takes longer than one decode step."""
        count = getattr(self._model.config.get_text_config(decoder=True), "num_hidden_layers", 0)
        if count != len(self._empty_layers):
            self._empty_layers = _full_length_cache(self._model, 1).layers
        return self._empty_layers

    def replaced_attributes(self) -> Iterable[tuple[Any, str]]:
        """Return the modules and names of tensors that are other ones than before an earlier prompt."""
        found = {
            (x, name): value
            for x in self._model.modules()
            for name, value in vars(x).items()
            if isinstance(value, torch.Tensor)
        }
        self.replaced |= {key: None for key, value in found.items() if self._attributes.get(key, value) is not value}
        self._attributes = found
        return self.replaced

    def take(self, rows: int, length: int, encoder_length: int) -> "_Slot":
        """Return an empty static cache for so many rows and tokens, with its graph if there is one."""
        bucket = _SMALLEST_BUCKET
        while bucket < length:
            bucket *= 2
        model = self._model
        stream = torch.cuda.current_stream(model.device).cuda_stream if model.device.type == "cuda" else 0
        # Torch allows writes to a tensor made in inference mode only in that mode.
        key = rows, bucket, encoder_length, torch.is_inference_mode_enabled(), stream
        where = model.dtype, model.device
        self._take_abandoned()
        with self._lock:
            for slot in [slot for slot in self._free if slot.where != where]:
                self._drop(slot)
            found = next((slot for slot in self._free if slot.key == key), None)
            if found is not None:
                self._free.remove(found)
        if found is None:
            return _Slot(model, key, where, self.capture)
        found.cache.reset()
        return found

    def step_model(self, slot: "_Slot", tokens: Any, inputs: dict[str, Any]) -> Any:
        """Return what the captured steps of this cache call: the compiled model or the model."""
        if self._compiled_step is None:
            return self._model
        if slot.step_model is None:
            slot.step_model = self._compiled_step.compiled_or_plain(slot, tokens, inputs)
        return slot.step_model

    def why_without_graph(self, choice: Choice) -> str:
        """Return why this way to choose tokens has no graph; "" if it has one, or may have one now.

        The first ones get a graph at once. A later one gets it when it is used again, in place of the one that was not used for longest:
        a program may use another temperature in each call.
        """
        key = choice.key
        with self._lock:
            if key not in self._choices:
                if len(self._choices) >= _MAX_CHOICES and key not in self._seen_choices:
                    self._seen_choices.append(key)
                    return "these sampling parameters are new, and get a graph when they are used again"
                self._choices[key] = ""
                if len(self._choices) > _MAX_CHOICES:
                    self._choices.popitem(last=False)
                    for slot in self._free:
                        self._close_unused_choices(slot)
            self._choices.move_to_end(key)
            return self._choices[key]

    def count_path(self, why: str) -> None:
        """Count a call of `generate`: "" means that it uses one replay per token."""
        with self._lock:
            self._paths[why] += 1

    def require_loop(self, why: str) -> None:
        """Leave this call, and every later one, to the loop of transformers."""
        with self._lock:
            self.loop_required = why
            self._paths[""] -= 1
            self._paths[why] += 1

    def prefill(self, slot: "_Slot", input_ids: Any, inputs: dict[str, Any]) -> Captured | None:
        """Return the captured prompt if this form of prompt was seen before, and is short enough to gain from a graph."""
        if input_ids.numel() > _MAX_PREFILL_TOKENS or keep_states(slot.cache.layers):
            return None
        key = slot.key, input_ids.shape, tuple(inputs)
        with self._lock:
            if key not in self._seen_prompts:
                self._seen_prompts.append(key)
                return None
        return slot.prefill if slot.cache.is_initialized and self.result_type is not None else None

    def abandon(self, slot: "_Slot") -> None:
        """Keep a cache that nobody gave back. Its memory is used again from the next call on."""
        self._abandoned.append(slot)

    def _take_abandoned(self) -> None:
        while self._abandoned:
            self.give_back(self._abandoned.popleft())

    def give_back(self, slot: "_Slot") -> None:
        """Keep a cache and its graph for the next call."""
        with self._lock:
            self._close_unused_choices(slot)
            for step in slot.token_steps.values():
                report = step.step.report()
                if report.refusals and not report.replays and not step.choice.is_plain:
                    self._choices[step.choice.key] = f"it cannot be captured: {report.refusals[-1].message}"
            replays = slot.count_replays()
            refusals = slot.refusals()
            if refusals and replays == slot.replays:  # a static cache without a graph would only be slower
                self._refused = refusals[-1]
            slot.replays = replays
            self._free.append(slot)
            while len(self._free) > (0 if self._undone else _MAX_KEPT_CACHES):
                self._drop(self._free[0])

    def _close_unused_choices(self, slot: "_Slot") -> None:
        for key, step in list(slot.token_steps.items()):
            if step.choice.key not in self._choices:
                self._close(slot.token_steps.pop(key).step)

    def _drop(self, slot: "_Slot") -> None:
        self._free.remove(slot)
        for step in slot.captured:
            self._close(step)
        self._close(slot.prefill, "prefill")
        slot.reorder.close()

    def _close(self, captured: Captured, part: str = "decode step") -> None:
        self._closed[part].update({k: n for k, n in captured.report().counters().items() if "_total" in k})
        captured.close()

    def _counters(self, part: str, captured: Iterable[Captured]) -> Counter[str]:
        """Return the counters of the graphs of a part, also of those that were freed."""
        counters = self._closed[part].copy()
        for one in captured:
            counters.update(one.report().counters())
        return counters

    def explain(self) -> ProgramReport:
        """Return what was optimized, and what was left alone and why."""
        self._take_abandoned()
        with self._lock:
            slots, left, paths = list(self._free), self._left.copy(), +self._paths
        parts = []
        steps = self._counters("decode step", (step for slot in slots for step in slot.captured))
        prompts = self._counters("prefill", (slot.prefill for slot in slots))
        replays, prefills = steps["rocsolid_replays_total"], prompts["rocsolid_replays_total"]
        refused = dict.fromkeys(message for slot in slots for message in slot.refusals())
        sizes = ", ".join(f"{slot.rows} × {slot.bucket}" for slot in slots)
        if self._generated:
            detail = f"{_calls(self._generated)} of generate, {replays} replayed steps; caches (rows × tokens): {sizes or 'none'}"
            parts.append(ProgramPart(name="decode step", optimized=replays > 0, detail=detail, counters=steps))
            parts += [
                ProgramPart(
                    name="decode loop",
                    optimized=not why,
                    detail=f"{_calls(count)} {f'in the loop of transformers: {why}' if why else 'with one replay per token'}",
                    counters={f'rocsolid_generate_calls_total{{loop="{"transformers" if why else "graph"}"}}': count},
                )
                for why, count in sorted(paths.items())
            ]
            detail = f"{prefills} of {_calls(self._generated)} replayed; a length of prompt has a graph from its second use on"
            parts.append(ProgramPart(name="prefill", optimized=prefills > 0, detail=detail, counters=prompts))
        parts += [ProgramPart(name="decode step", optimized=False, detail=message) for message in refused]
        parts += self._compiled_step.explain() if self._compiled_step is not None else []
        refused = dict.fromkeys(x.message for slot in slots for x in slot.prefill.report().refusals)
        parts += [ProgramPart(name="prefill", optimized=False, detail=message) for message in refused]
        parts += [
            ProgramPart(
                name="generate",
                optimized=False,
                detail=f"{_calls(count)}: {why}",
                counters={f'rocsolid_eager_calls_total{{reason="{_label(why)}"}}': count},
            )
            for why, count in left.items()
        ]
        if not parts:
            parts = [ProgramPart(name="generate", optimized=False, detail="was not called yet")]
        return ProgramReport(name=type(self._model).__name__, parts=tuple(parts))

    report = explain

    def undo(self) -> Any:
        """Free the graphs, and leave every later call to the model."""
        with self._lock:
            self._undone = True
            for slot in list(self._free):
                self._drop(slot)
        return self._model


class _CompiledStep:
    """The compiled model for decode steps. For each size of cache it is compiled and compared with eager once.

    With a limit of 0 the logits have to be bitwise those of eager. A single value that is rounded differently changes all logits by about as
    much as their dtype rounds, which is enough for another token where two are nearly equal. So many steps are compared.
    """

    def __init__(self, model: Any, compiled: Any, limit: float) -> None:
        self._model = model
        self._compiled = compiled
        self._limit = limit
        self._lock = threading.Lock()
        self._results: dict[str, tuple[bool, str]] = {}  # by size: whether it is used, and its error or why not

    def compiled_or_plain(self, slot: "_Slot", tokens: Any, inputs: dict[str, Any]) -> Any:
        """Compare the logits of the next step, and return the compiled model if they are close enough; else the plain one."""
        size = f"{slot.rows} × {slot.bucket}"
        used = False
        with self._lock:
            _log.info("%s: compiling the decode step for a cache of %s tokens", type(self._model).__name__, size)
            try:
                limit = self._limit
                compare = self._compare_exactly if limit == 0 else partial(self._compare_with_limit, limit)
                used, found = compare(slot, tokens[:, -1:], inputs)
            except Exception as failure:  # noqa: BLE001 - of a compiler or library; the plain model has worked before
                found = f"{type(failure).__name__}: {first_line(failure)}"
            fallbacks = self._compiled.rocsolid.report().eager if hasattr(self._compiled, "rocsolid") else ()
            if used and fallbacks:
                used, found = False, f"it runs in eager: {fallbacks[-1]}"
            self._results[size] = used, found
        if not used:
            _log.warning(
                "%s: the decode step for a cache of %s tokens is not compiled: %s",
                type(self._model).__name__,
                size,
                found,
            )
        return self._compiled if used else self._model

    def _compare_with_limit(self, limit: float, slot: "_Slot", token: Any, inputs: dict[str, Any]) -> tuple[bool, str]:
        error = relative_error(*(self._logits(x, slot, token, inputs) for x in (self._compiled, self._model)))
        return error <= limit, f"relative error {error:.1e} against eager, {limit:g} is allowed"

    def _compare_exactly(self, slot: "_Slot", token: Any, inputs: dict[str, Any]) -> tuple[bool, str]:
        words = self._model.config.get_text_config(decoder=True).vocab_size
        others = torch.randint(words, (_COMPARED_STEPS, *token.shape), generator=torch.Generator().manual_seed(0))
        others[0] = token
        for step, tokens in enumerate(others.to(token.device), 1):
            want, got = (self._logits(model, slot, tokens, inputs) for model in (self._model, self._compiled))
            if not torch.equal(got, want):
                error = relative_error(got, want)
                steps = f"in step {step} of {_COMPARED_STEPS}"
                return (
                    False,
                    f"the logits differ from eager's {steps}, relative error {error:.1e}; a larger limit= allows a difference",
                )
        return True, f"the logits of {_COMPARED_STEPS} steps are bitwise those of eager"

    @staticmethod
    def _logits(model: Any, slot: "_Slot", token: Any, inputs: dict[str, Any]) -> Any:
        """Return the logits of a step, which is undone."""
        named = model_inputs({**inputs, token_name(slot.outer): token})
        # Keys and values of the same token are written again.
        kept = [
            x for layer in slot.cache.layers for x in _tensors(layer) if x is not layer.keys and x is not layer.values
        ]
        before = [tensor.clone() for tensor in kept]
        try:
            return model(**named, past_key_values=slot.outer, return_dict=True).logits
        finally:
            for tensor, value in zip(kept, before, strict=True):
                tensor.copy_(value)

    def explain(self) -> list[ProgramPart]:
        """Return one part for each size of cache."""
        return [
            ProgramPart(name="compiled step", optimized=used, detail=f"cache {size}: {found}")
            for size, (used, found) in self._results.items()
        ]


class _Slot:
    """A static cache of one size, and the captured decode step that reads and writes it."""

    def __init__(self, model: Any, key: tuple[Any, ...], where: tuple[Any, Any], capture: Capture) -> None:
        self.key, self.where = key, where
        self.rows, self.bucket = key[:2]
        self.replays = 0  # when it was last given back
        self.step_model: Any = None  # what the captured steps call, once it is known
        bucket = self.bucket
        self.cache = cache = _full_length_cache(model, bucket)
        self.outer = outer = EncoderDecoderCache(cache, DynamicCache()) if model.config.is_encoder_decoder else cache

        def run_model(**inputs: Any) -> Any:
            result = dict(model(past_key_values=outer, **inputs))
            result.pop("past_key_values", None)
            return result

        def undo_step() -> None:
            for length in lengths(cache.layers):  # keys and values of the same token are written again
                length.sub_(1)

        def run_block(start: Any, **inputs: Any) -> Any:
            for length in lengths(cache.layers):
                length.copy_(start)
            return run_model(**inputs)

        def reorder(rows: Any) -> None:
            for layer in cache.layers:
                for tensor in _tensors(layer):
                    if tensor.ndim:
                        tensor.copy_(tensor.index_select(0, rows))

        step = capture(run_model)
        self.step = step if keep_states(cache.layers) else step.with_undo(undo_step)
        #: One or more tokens behind the first `start` ones, which are kept. A repetition writes the same again.
        self.block = capture(run_block).with_undo(lambda: None)
        self.reorder = capture(reorder)
        self.prefill = capture(run_model)  # keeps as many lengths as a captured function keeps graphs
        self.token_steps: dict[Any, TokenStep] = {}  # by inputs and choice
        self._attributes: dict[tuple[Any, str], Any] = {}  # tensors, by module and name

    def keep_attributes(self, places: Iterable[tuple[Any, str]]) -> None:
        """Put tensors that are attributes of modules, and replaced by each prompt, where the graphs read them."""
        for module, name in places:
            value, kept = getattr(module, name, None), self._attributes.get((module, name))
            if not isinstance(value, torch.Tensor) or value is kept:
                continue
            if kept is None or (kept.shape, kept.dtype, kept.device) != (value.shape, value.dtype, value.device):
                kept = self._attributes[module, name] = value.clone()
            else:
                kept.copy_(value)
            setattr(module, name, kept)

    def keep_cross(self, cross: Any) -> None:
        """Copy keys and values of the encoder's output to where the graphs read them."""
        kept = self.outer.cross_attention_cache
        for index, layer in enumerate(cross.layers):
            if self.outer.is_updated.get(index):
                kept.layers[index].keys.copy_(layer.keys)
                kept.layers[index].values.copy_(layer.values)
            else:
                kept.update(layer.keys, layer.values, index)
                self.outer.is_updated[index] = True

    @property
    def captured(self) -> "list[Captured]":
        """Every captured step of this slot."""
        return [self.step, self.block, *(step.step for step in self.token_steps.values())]

    def count_replays(self) -> int:
        """Return how many steps were replayed."""
        return sum(step.report().replays for step in self.captured)

    def refusals(self) -> list[str]:
        """Return why the decode step was not captured, apart from ways to choose a token."""
        steps = [self.step, self.block, *(step.step for step in self.token_steps.values() if step.choice.is_plain)]
        return [refusal.message for step in steps for refusal in step.report().refusals]


def _full_length_cache(model: Any, bucket: int) -> Any:
    """Return a static cache whose layers all have the full length; a sliding window is left to the attention mask.

    The shorter layers of transformers count tokens in Python, which a replay does not do.
    """
    cache = StaticCache(config=model.config.get_text_config(decoder=True), max_cache_len=bucket)
    layers = cache.layers
    cache.layers = [StaticLayer(max_cache_len=bucket) if type(x) is StaticSlidingWindowLayer else x for x in layers]
    return cache


def _tensors(layer: Any) -> list[Any]:
    """Return the tensors that a layer keeps, always in the same order."""
    values = (value.values() if isinstance(value, dict) else (value,) for value in vars(layer).values())
    return [tensor for some in values for tensor in some if isinstance(tensor, torch.Tensor)]


def _longer(old: Any, new: Any) -> Any:
    """Copy what a layer keeps to one of a larger cache, and return that. If it was never used, it may be replaced."""
    if not isinstance(new, StaticLayer):
        if not _tensors(new):
            return copy.deepcopy(old)
        new.has_previous_state.update(old.has_previous_state)
    elif not new.is_initialized:
        new.lazy_initialization(old.keys, old.values)
    for source, target in zip(_tensors(old), _tensors(new), strict=True):
        target[tuple(map(slice, source.shape))].copy_(source)
    return new


class _BucketCache(StaticCache):  # type: ignore[misc]
    """The cache of one call of `generate`: the layers of a slot, which is replaced by a larger one when it is full."""

    def __init__(self, generation: _Generation, *, assists: bool, is_assisted: bool) -> None:
        layers = generation.empty_layers()  # replaced before they are used
        super(StaticCache, self).__init__(layers=list(layers))
        others = {type(layer).__name__ for layer in layers} - _LAYERS
        self.unsupported = f"the model has layers of another kind: {', '.join(sorted(others))}" if others else ""
        if (is_assisted or assists) and keep_states(layers):
            self.unsupported = "layers with a state cannot forget the tokens that are not accepted"
        self._generation = generation
        self._has_encoder = bool(generation.model.config.is_encoder_decoder)
        self._encoder_length = 0
        self._cross = _CrossCache() if self._has_encoder else None
        #: Whether it is for the model that proposes tokens to another one, in several calls of `generate`.
        self.is_draft = bool(assists)
        self._in_blocks = is_assisted or self.is_draft  # tokens are removed again
        self._slot: Any = None  # a `_Slot` from the first call of the model on
        self._length = 0
        self._mask: Any = None
        self.replays_steps = True
        self._prompt: dict[str, Any] = {}  # the inputs of the prompt, and how many tokens it has
        self._prompt_length = 0
        self._prefill: Captured | None = None  # the captured prompt, if it is replayed
        self._seen: dict[str, Any] | None = None  # the inputs of the last step that transformers prepared

    def for_generate(self) -> Any:
        """Return what `generate` gets: this cache, or with an encoder one that also has the keys and values of its output."""
        return self if self._cross is None else _EncoderDecoderCache(self, self._cross)

    def belongs_to(self, generation: _Generation) -> bool:
        """Whether this is the cache of an earlier draft of the same model."""
        return self._generation is generation and self._slot is not None

    def pause(self) -> None:
        """Keep only what the next draft needs."""
        self._prompt, self._prefill = {}, None

    def __del__(self) -> None:
        if getattr(self, "_slot", None) is not None:
            self._generation.abandon(self._slot)

    def prepare(self, input_ids: Any, given: dict[str, Any]) -> dict[str, Any] | None:
        """Make room for the next call. Return the inputs of a decode step, or None if the model has to prepare them."""
        embeds = None if self._has_encoder else given.get("inputs_embeds")
        prompt = embeds if embeds is not None and not self._length else input_ids
        if self._has_encoder:
            self._encoder_length = given["encoder_outputs"].last_hidden_state.shape[1]
        inputs, count = None, (given.get("next_sequence_length") or 0) if self._length else prompt.shape[1]
        self._grow(prompt.shape[0], self._length + (_block_size(count) if self._in_blocks else count or 1))
        if not self._length:
            self._prompt, self._prompt_length = given, prompt.shape[1]
            self._prefill = None
            if embeds is None and not self._has_encoder and self._generation.plain_inputs:
                inputs = self._prompt_inputs(input_ids, given)
        elif self._generation.plain_inputs and (count == 1 or (count and self._in_blocks)):
            inputs = self._step_inputs(given, tokens=count)
            if not self._in_blocks:
                self._seen = inputs
        if inputs is None:
            if self._in_blocks:  # the model reads it for the mask
                self._write_length()
            return None
        tokens = input_ids[:, -count:].clone(memory_format=torch.contiguous_format)
        return model_inputs({**inputs, token_name(given["past_key_values"]): tokens})

    def _prompt_inputs(self, input_ids: Any, given: dict[str, Any]) -> dict[str, Any] | None:
        """Return the inputs of a prompt that is captured; None if it runs in eager.

        With a mask as long as the cache, eager uses the attention kernel that the graph uses. Without, it would use another one.
        """
        inputs = self._step_inputs(given, tokens=input_ids.shape[1])
        if inputs is None:
            return None
        if inputs.get("attention_mask") is None:
            inputs["attention_mask"] = input_ids.new_ones(input_ids.shape[0], self._slot.bucket)
        self._prefill = self._generation.prefill(self._slot, input_ids, inputs)
        return None if self._prefill is None else inputs

    def _step_inputs(self, given: dict[str, Any], *, tokens: int = 1) -> dict[str, Any] | None:
        """Return the inputs for the last tokens besides these tokens; None if the model has to prepare them."""
        left_out = (*_ONLY_FOR_PREPARING, *(MULTIMODAL_INPUTS_TO_DROP_OUTSIDE_PREFILL if self._length else ()))
        inputs = {name: value for name, value in given.items() if name not in left_out}
        device = self._generation.model.device
        if self._has_encoder:  # the other results of the encoder are not read any more
            inputs["encoder_outputs"] = encoded = inputs["encoder_outputs"].last_hidden_state
        tensors = {name for name, value in inputs.items() if isinstance(value, torch.Tensor)}
        if not self._length and not tensors <= set(_ENCODED if self._has_encoder else _ROWS):
            return None  # pictures or sound
        if any(inputs[name].device != device for name in tensors) or not _are_constants(inputs, tensors):
            return None
        for name in ("position_ids", *_TOKEN_TYPES):
            if inputs.get(name) is not None:
                inputs[name] = inputs[name][..., -tokens:].clone(memory_format=torch.contiguous_format)
        if self._has_encoder:
            mask = inputs.get("decoder_attention_mask")
            # Without a mask, some models make one whose size is read from the device.
            mask = encoded.new_ones(encoded.shape[0], 0, dtype=torch.long) if mask is None else mask
            inputs["decoder_attention_mask"] = self._padded_mask(mask)
        elif inputs.get("attention_mask") is not None:
            inputs["attention_mask"] = self._padded_mask(inputs["attention_mask"])
        return inputs

    def choice(self, input_ids: Any, given: dict[str, Any]) -> Choice | None:
        """Return how this call chooses tokens, if that can be done in a graph; None if it stays in the loop of transformers."""
        generation = self._generation
        choice = None
        why = generation.loop_required or why_in_loop(given)
        if not why:
            choice = Choice(given, input_ids.device)
            why = generation.why_without_graph(choice)
        generation.count_path(why)
        return None if why else choice

    @property
    def inputs_are_known(self) -> bool:
        """Whether the loop's second step was seen to get the inputs that `next_inputs` returns."""
        return self._generation.inputs_are_known

    def next_inputs(self, rows: int) -> dict[str, Any] | None:
        """Make room for the next step, and return its inputs besides the token; None if they are not those of transformers' loop."""
        self._grow(rows, self._length + 1)
        inputs = self._step_inputs(self._prompt)
        if inputs is None or not self._is_as_seen(inputs):
            self._generation.require_loop("its inputs are not those that we expect")
            return None
        if inputs.get("position_ids") is not None:
            inputs["position_ids"] = inputs["position_ids"] + (self._length - self._prompt_length + 1)
        if inputs.get("mm_token_type_ids") is not None:
            inputs["mm_token_type_ids"] = torch.zeros_like(inputs["mm_token_type_ids"])  # all new tokens are text
        return {name: value for name, value in inputs.items() if name != "past_key_values" and value is not None}

    def _is_as_seen(self, inputs: dict[str, Any]) -> bool:
        if self._seen is not None and not self._generation.inputs_are_known:
            expected = dict(inputs)
            if inputs.get("position_ids") is not None:
                expected["position_ids"] = inputs["position_ids"] + 1
            if inputs.get("mm_token_type_ids") is not None:
                expected["mm_token_type_ids"] = torch.zeros_like(inputs["mm_token_type_ids"])
            self._generation.inputs_are_known = same_inputs(expected, self._seen)
        return self._generation.inputs_are_known

    def token_step(self, tokens: Any, inputs: dict[str, Any], choice: Choice) -> TokenStep:
        """Return the captured step from one token to the next for these inputs and this choice."""
        slot = self._slot
        constants = tuple((name, x.shape if isinstance(x, torch.Tensor) else x) for name, x in inputs.items())
        key = constants, choice.key
        if key not in slot.token_steps:
            generation = self._generation
            log = tokens.new_zeros(slot.bucket, 3, tokens.shape[0])
            model = generation.step_model(slot, tokens, inputs)
            slot.token_steps[key] = TokenStep(model, slot.outer, generation.capture, log, inputs, choice)
        step: TokenStep = slot.token_steps[key]
        return step

    @property
    def room(self) -> int:
        """How many more tokens the present memory can hold."""
        return int(self._slot.bucket) - _SPARE - self._length

    def advance(self, steps: int) -> None:
        """Note that so many steps were done."""
        self._length += steps

    def get_seq_length(self, layer_idx: int = 0) -> Any:
        """Return how many tokens are kept; an integer where the loop computes with it."""
        return self._length if self._in_blocks else super().get_seq_length(layer_idx)

    def crop(self, tokens_to_remove: int) -> None:
        """Forget the last tokens. The next ones are written over them."""
        self._length -= abs(int(tokens_to_remove))

    def reorder_cache(self, beam_idx: Any) -> None:
        """Move the rows in the memory of the graphs, in which transformers would replace the tensors."""
        self._slot.reorder(beam_idx)

    def restart(self) -> None:
        """Forget everything that was cached."""
        self._slot.cache.reset()
        self._length, self._mask, self._seen = 0, None, None

    def _padded_mask(self, mask: Any) -> Any:
        """Return the mask with the size of the cache. Later tokens are attended to when they exist, so their part is 1."""
        if self._mask is None:
            self._mask = mask.new_ones(mask.shape[0], self._slot.bucket)
            self._mask[:, : mask.shape[1]] = mask
        return self._mask

    def _grow(self, rows: int, length: int) -> None:
        slot = self._slot
        if slot is not None and slot.bucket >= length + _SPARE:
            return
        larger = self._generation.take(rows, length + _SPARE, self._encoder_length)
        if slot is not None:
            pairs = zip(slot.cache.layers, larger.cache.layers, strict=True)
            larger.cache.layers[:] = [_longer(old, new) for old, new in pairs]
            larger.keep_attributes(self._generation.replaced)
            if self._cross is not None:
                larger.keep_cross(self._cross)
            self._generation.give_back(slot)
        self._slot, self._mask = larger, None
        self.layers = larger.cache.layers

    def call(self, model: Any, inputs: dict[str, Any]) -> Any:
        """Call the model with this cache."""
        outer = inputs["past_key_values"]
        tokens = inputs.get(token_name(outer))
        if tokens is None:
            tokens = inputs["inputs_embeds"]
        generation = self._generation
        named = {name: value for name, value in inputs.items() if name != "past_key_values" and value is not None}
        captured = None if self._length else self._prefill
        if self._length and tokens.shape[1] == 1 and self.replays_steps and inputs.get("return_dict") is True:
            captured = self._slot.step
        if self._length and self._in_blocks and tokens.ndim == _TOKEN_NDIM:
            result = generation.result_type(**self._block(named, token_name(outer)), past_key_values=outer)
        elif captured is not None:
            result = generation.result_type(**captured(**named), past_key_values=outer)
        else:
            if self._in_blocks:
                self._write_length()
            result = model(**inputs)
            generation.result_type = type(result)
            self._slot.keep_attributes(generation.replaced_attributes())
            if not self._length and self._cross is not None:
                self._slot.keep_cross(self._cross)
        self._length += tokens.shape[1]
        return result

    def _write_length(self) -> None:
        for length in lengths(self.layers):
            length.fill_(self._length)

    def _block(self, inputs: dict[str, Any], name: str) -> dict[str, Any]:
        """Call the model with some tokens behind those that are kept.

        Their number is rounded up to a power of 2, so that few graphs are needed. The places of the additional ones are written again.
        """
        tokens, start = inputs[name], inputs[name].new_full((), self._length)
        count = tokens.shape[1]
        size = _block_size(count)
        mask = inputs.get("attention_mask")
        by_token = any(inputs.get(result) for result in _RESULTS_OF_TOKENS) or (
            mask is not None and mask.ndim != _MASK_NDIM
        )
        keeps_all = inputs.get("logits_to_keep", count) == count
        tensors = {name for name, value in inputs.items() if isinstance(value, torch.Tensor)}
        if size == count or by_token or not keeps_all or tensors - {"attention_mask"} != {name, "position_ids"}:
            return self._slot.block(start, **inputs)  # type: ignore[no-any-return]
        positions = inputs["position_ids"]
        last = positions[..., -1:].expand(*positions.shape[:-1], size - count)
        padded = {**inputs, name: torch.nn.functional.pad(tokens, (0, size - count))}
        padded["position_ids"] = torch.cat([positions, last], -1)
        if "logits_to_keep" in inputs:
            padded["logits_to_keep"] = size
        result = self._slot.block(start, **padded)
        return {**result, "logits": result["logits"][:, :count]}

    def as_dynamic(self) -> Any:
        """Return the same keys and values in the kind of cache that `generate` would have returned."""
        dynamic = DynamicCache(config=self._generation.model.config.get_text_config(decoder=True))
        for index, layer in enumerate(self.layers):
            if not isinstance(layer, StaticLayer):
                dynamic.layers[index] = copy.deepcopy(layer)
            elif layer.is_initialized:
                dynamic.update(
                    layer.keys[:, :, : self._length].clone(), layer.values[:, :, : self._length].clone(), index
                )
        if self._cross is None:
            return dynamic
        cross = DynamicCache()
        cross.layers = self._cross.layers
        return EncoderDecoderCache(dynamic, cross)

    def release(self) -> None:
        """Give the memory back for the next call of `generate`."""
        slot, self._slot = self._slot, None
        if slot is not None:
            self.layers = []
            self._generation.give_back(slot)


class _CrossCache(DynamicCache):  # type: ignore[misc]
    """Keys and values of the encoder's output. They are the same for all beams of an input."""

    def reorder_cache(self, beam_idx: Any) -> None:
        """Leave the rows as they are."""


class _EncoderDecoderCache(EncoderDecoderCache):  # type: ignore[misc]
    """That of transformers, but it can be cropped with a static cache."""

    def crop(self, tokens_to_remove: int) -> None:
        """Forget the last tokens of the decoder."""
        self.self_attention_cache.crop(tokens_to_remove)


def _are_constants(inputs: dict[str, Any], tensors: set[str]) -> bool:
    """Whether all inputs besides the tensors and the cache can be part of a key."""
    try:
        hash(tuple(value for name, value in inputs.items() if name not in {*tensors, "past_key_values"}))
    except TypeError:
        return False
    return True


def _block_size(count: int) -> int:
    """Return for how many tokens a graph is made."""
    return 1 << (count - 1).bit_length() if count else 1


def _bucket_cache(given: dict[str, Any]) -> _BucketCache | None:
    """Return our cache, if `generate` passes it to the model."""
    cache = given.get("past_key_values")
    cache = cache.self_attention_cache if isinstance(cache, EncoderDecoderCache) else cache
    return cache if isinstance(cache, _BucketCache) else None


def _label(text: str) -> str:
    """Return a text for a label of a metric, which must not need escapes."""
    return re.sub(r"[\"\\\s]+", " ", text)


def _calls(count: int) -> str:
    return "1 call" if count == 1 else f"{count} calls"
