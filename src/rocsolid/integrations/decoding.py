"""Decoding of transformers with one replay per token: the graph also chooses the token and stores it.

`generate` of transformers runs the prompt and chooses the first token. All that its loop would do for the others is in the graph, so
Python only replays it, and reads one step later which token it was and whether a sequence goes on. This holds for greedy decoding and
for sampling, with processors whose result depends only on what is in the graph. Anything else stays in the loop of transformers.
"""

import copy
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, Final

import torch
from transformers import EncoderDecoderCache, EosTokenCriteria, MaxLengthCriteria, StoppingCriteriaList
from transformers.cache_utils import LinearAttentionLayer, StaticLayer
from transformers.generation import logits_process
from transformers.modeling_outputs import BaseModelOutput

from rocsolid.runtime.capture.captured import Captured

#: Processors that compute the new scores from the scores alone, without a wait for the GPU. `EtaLogitsWarper` and `TopHLogitsWarper` wait.
_OF_SCORES: Final = (
    logits_process.TemperatureLogitsWarper,
    logits_process.TopKLogitsWarper,
    logits_process.TopPLogitsWarper,
    logits_process.MinPLogitsWarper,
    logits_process.TypicalLogitsWarper,
    logits_process.EpsilonLogitsWarper,
    logits_process.InfNanRemoveLogitsProcessor,
    logits_process.LogitNormalization,
)
#: These read the tokens, too, and change the scores of those. The rest of a fixed size is an id behind the vocabulary.
_OF_TOKENS: Final = (logits_process.RepetitionPenaltyLogitsProcessor,)
_ONLY_FIRST: Final = (logits_process.ForcedBOSTokenLogitsProcessor,)  # the loop of transformers chooses the first token
_CRITERIA: Final = (MaxLengthCriteria, EosTokenCriteria)
_NAN_ERROR: Final = "probability tensor contains either `inf`, `nan` or element < 0"  # as `torch.multinomial`


def why_in_loop(given: Mapping[str, Any]) -> str:
    """Return why a call with these arguments stays in transformers' loop; "" if one replay per token gives the same tokens."""
    config, criteria = given["generation_config"], given["stopping_criteria"]
    processors = [type(one).__name__ for one in given["logits_processor"] if type(one) not in _PROCESSORS]
    stopping = [type(one).__name__ for one in criteria if type(one) not in _CRITERIA]
    reasons = (
        (config.return_dict_in_generate, "return_dict_in_generate= is set"),
        (getattr(config, "is_assistant", False), "it drafts for another model"),
        (given.get("synced_gpus"), "synced_gpus= is set"),
        (given.get("inputs_embeds") is not None, "the prompt is inputs_embeds="),
        (processors, f"the logits processor {', '.join(processors)}"),
        (stopping, f"the stopping criterion {', '.join(stopping)}"),
        (all(type(one) is not MaxLengthCriteria for one in criteria), "there is no maximal length"),
    )
    return next((reason for applies, reason in reasons if applies), "")


class _MinimalLength:
    """Does what the processors for a minimal length do, with the length in a tensor."""

    def __init__(self, processor: Any) -> None:
        is_total = type(processor) is logits_process.MinLengthLogitsProcessor
        length = processor.min_length if is_total else processor.prompt_length_to_skip + processor.min_new_tokens
        self.length = torch.tensor([length])
        self.end_ids = processor.eos_token_id

    def __call__(self, column: Any, scores: Any) -> Any:
        is_end = _is_one_of(torch.arange(scores.shape[-1], device=scores.device), self.end_ids)
        return scores.masked_fill(is_end & (column + 1 < self.length), -torch.inf)


def _is_one_of(tokens: Any, ids: Any) -> Any:
    """Do what `torch.isin` does, which waits for the GPU if there are more than ten ids."""
    return (tokens[..., None] == ids).any(dim=-1)


class _ForcedEnd:
    """Does what the processor for the last token does, with the length in a tensor."""

    def __init__(self, processor: Any) -> None:
        self.length = torch.tensor([processor.max_length])
        self.end_ids = torch.as_tensor(processor.eos_token_id).flatten()

    def __call__(self, column: Any, scores: Any) -> Any:
        is_end = _is_one_of(torch.arange(scores.shape[-1], device=scores.device), self.end_ids)
        forced = torch.zeros_like(scores).masked_fill(~is_end, -torch.inf)
        return torch.where(column + 2 == self.length, forced, scores)


_OF_LENGTH: Final = {
    logits_process.MinLengthLogitsProcessor: _MinimalLength,
    logits_process.MinNewTokensLengthLogitsProcessor: _MinimalLength,
    logits_process.ForcedEOSTokenLogitsProcessor: _ForcedEnd,
}
_PROCESSORS: Final = (*_OF_SCORES, *_OF_TOKENS, *_ONLY_FIRST, *_OF_LENGTH)


class Choice:
    """How the next token is chosen from the logits, and which tokens end a sequence.

    `key` is equal for two of them that can use the same graph: they may differ in the values of tensors.
    """

    def __init__(self, given: Mapping[str, Any], device: Any) -> None:
        config = given["generation_config"]
        criteria = given["stopping_criteria"]
        self.samples = bool(config.do_sample)
        self.max_length: int = min(one.max_length for one in criteria if type(one) is MaxLengthCriteria)
        self.other_criteria = [one for one in criteria if type(one) is not MaxLengthCriteria]
        self.processors: list[Any] = [
            _OF_LENGTH[type(one)](one) if type(one) in _OF_LENGTH else copy.copy(one)
            for one in given["logits_processor"]
            if type(one) not in _ONLY_FIRST
        ]
        for processor in self.processors:
            for name, value in _tensors(processor).items():
                setattr(processor, name, value.to(device))
        self.ends: tuple[Any, Any] | None = None  # the ids that end a sequence, and the id after its end
        if self.other_criteria:
            end_ids = torch.cat([one.eos_token_id.to(device).flatten() for one in self.other_criteria])
            self.ends = end_ids, config._pad_token_tensor.to(device)  # noqa: SLF001 - as in its loop
        self.is_plain = not self.samples and not self.processors
        self.key: Hashable = (
            self.samples,
            self.ends and (tuple(self.ends[0].tolist()), int(self.ends[1])),
            tuple(map(_processor_key, self.processors)),
        )

    def copied(self) -> "Choice":
        """Return the same choice with tensors of its own."""
        mine = copy.copy(self)
        mine.processors = list(map(copy.copy, self.processors))
        for processor in mine.processors:
            for name, value in _tensors(processor).items():
                setattr(processor, name, value.clone())
        return mine

    def update(self, other: "Choice") -> None:
        """Take the values of the tensors of another choice with the same key."""
        for mine, theirs in zip(self.processors, other.processors, strict=True):
            for name, value in _tensors(theirs).items():
                getattr(mine, name).copy_(value)


def _processed(processor: Any, tokens: Any, column: Any, scores: Any) -> Any:
    if type(processor) in _OF_LENGTH.values():
        return processor(column, scores)
    if (
        type(processor) in _OF_TOKENS
    ):  # with a score for the id behind the vocabulary, which transformers 5.17 does not ignore
        return processor(tokens, torch.nn.functional.pad(scores, (0, 1)))[:, :-1]
    return processor(tokens, scores)


def _tensors(processor: Any) -> dict[str, Any]:
    return {name: value for name, value in vars(processor).items() if isinstance(value, torch.Tensor)}


def _processor_key(processor: Any) -> Hashable:
    values = (
        (name, (value.shape, value.dtype) if isinstance(value, torch.Tensor) else value)
        for name, value in vars(processor).items()
    )
    return type(processor), *values


def lengths(layers: Iterable[Any]) -> list[Any]:
    """Return the tensors in which the layers of a static cache count their tokens."""
    return [layer.cumulative_length for layer in layers if isinstance(layer, StaticLayer)]


def keep_states(layers: Iterable[Any]) -> bool:
    """Whether layers keep a state of all tokens before, from which no token can be removed."""
    return any(isinstance(layer, LinearAttentionLayer) for layer in layers)


class TokenStep:
    """A captured step from one token to the next. What it reads and writes is in tensors of a fixed size.

    `log` has a row for each column of tokens: the tokens, whether the sequences go on after them, and whether they could not be drawn.
    """

    def __init__(
        self,
        model: Any,
        cache: Any,
        capture: Callable[[Any], Captured],
        log: Any,
        inputs: Mapping[str, Any],
        choice: Choice,
    ) -> None:
        column = log.new_zeros(1)
        layers = cache.self_attention_cache.layers if isinstance(cache, EncoderDecoderCache) else cache.layers
        inputs = {name: value.clone() if isinstance(value, torch.Tensor) else value for name, value in inputs.items()}
        position = inputs.get("position_ids")
        choice = choice.copied()
        processors, ends, samples = choice.processors, choice.ends, choice.samples
        reads_tokens = any(type(one) in _OF_TOKENS for one in processors)
        numbers = torch.arange(log.shape[0], device=log.device)
        self.log, self.column, self.inputs, self.choice = log, column, inputs, choice
        self._on_gpu = log.is_cuda
        # Two places in memory of the CPU, for the last step and for the one that runs.
        self._read = deque(
            (
                torch.empty_like(log[0], device="cpu", pin_memory=self._on_gpu),
                torch.cuda.Event() if self._on_gpu else None,
            )
            for _ in range(2)
        )

        def step() -> None:
            token, still_on, _ = log.index_select(0, column)[0]
            named = model_inputs({**inputs, token_name(cache): token[:, None]})
            result = model(**named, past_key_values=cache, return_dict=True)
            scores = result.logits[:, -1].to(copy=True, dtype=torch.float32)
            tokens = log[:, 0].t()
            if reads_tokens:
                tokens = tokens.masked_fill(numbers > column, scores.shape[-1])
            for processor in processors:
                scores = _processed(processor, tokens, column, scores)
            if samples:
                # As `torch.multinomial` does, but without its check, which waits for the GPU or ends the process.
                probabilities = torch.nn.functional.softmax(scores, dim=-1)
                chosen = (probabilities / torch.empty_like(probabilities).exponential_(1)).argmax(dim=-1)
                failed = probabilities.isnan().any(dim=-1).long()
            else:
                chosen, failed = scores.argmax(dim=-1), torch.zeros_like(token)
            if ends is not None:
                end_ids, padding = ends
                chosen = chosen * still_on + padding * (1 - still_on)
                still_on = still_on & ~_is_one_of(chosen, end_ids)
            column.add_(1)
            if position is not None:
                position.add_(1)
            log.index_copy_(0, column, torch.stack([chosen, still_on, failed])[None])

        def undo() -> None:  # not called for a step that draws random numbers
            column.sub_(1)
            if position is not None:
                position.sub_(1)
            for length in lengths(layers):  # keys and values of the same token are written again
                length.sub_(1)

        captured = capture(step)
        self.step = captured if keep_states(layers) else captured.with_undo(undo)

    def start(self, tokens: Any, inputs: Mapping[str, Any], goes_on: Any, choice: Choice) -> None:
        """Continue from these tokens; the last one was not given to the model yet."""
        self.log[: tokens.shape[1], 0] = tokens.t()
        self.log[tokens.shape[1] - 1, 1] = goes_on
        self.column.fill_(tokens.shape[1] - 1)
        self.choice.update(choice)
        for name, value in inputs.items():
            if isinstance(value, torch.Tensor):
                self.inputs[name].copy_(value)

    def send(self, row: int) -> None:
        """Copy a row to the CPU without waiting for it."""
        place, copied = self._read[0]
        place.copy_(self.log[row], non_blocking=self._on_gpu)
        if copied is not None:
            copied.record()
        self._read.rotate()

    def receive(self, steps_ago: int) -> Any:
        """Wait for the row that was sent last (0) or before (1), and return a copy of it."""
        place, copied = self._read[1 - steps_ago]
        if copied is not None:
            copied.synchronize()
        return place.clone()


def decode(cache: Any, choice: Choice, loop: Callable[..., Any], prompt: Any, given: Mapping[str, Any]) -> Any:
    """Return the tokens that transformers' loop would return.

    The loop runs for the first token, and the first time for a second one, to compare the inputs of its step with ours.
    """
    length, streamer = choice.max_length, given.get("streamer")
    generator = _generator(prompt.device) if choice.samples else None
    before = generator.get_state() if generator is not None else None
    cache.replays_steps = False
    by_loop = prompt.shape[1] + (1 if cache.inputs_are_known else 2)
    shorter = StoppingCriteriaList([MaxLengthCriteria(max_length=min(length, by_loop)), *choice.other_criteria])
    tokens = loop(prompt, **{**given, "stopping_criteria": shorter, "streamer": None})
    cache.replays_steps = True
    goes_on = torch.ones_like(tokens[:, 0])
    if choice.ends is not None:
        goes_on = goes_on & ~_is_one_of(tokens[:, prompt.shape[1] :], choice.ends[0]).any(dim=1)
    streamed = prompt.shape[1]
    while tokens.shape[1] < length and (choice.ends is None or bool(goes_on.any())):
        inputs = cache.next_inputs(tokens.shape[0])
        if inputs is None:
            cache.restart()
            if generator is not None:
                generator.set_state(before)
            return loop(prompt, **given)
        _stream(streamer, tokens[:, streamed:])
        step = cache.token_step(tokens, inputs, choice)
        step.start(tokens, inputs, goes_on, choice)
        steps = _run(step, tokens.shape[1], min(length - tokens.shape[1], cache.room), generator, streamer)
        cache.advance(steps)
        end = streamed = tokens.shape[1] + steps
        tokens = step.log[:end, 0].t().clone(memory_format=torch.contiguous_format)
        goes_on = step.log[end - 1, 1].clone()
    _stream(streamer, tokens[:, streamed:])
    if streamer is not None:
        streamer.end()
    return tokens


def _stream(streamer: Any, tokens: Any) -> None:
    if streamer is not None:
        for column in tokens.t().contiguous().cpu():
            streamer.put(column)


def _run(step: TokenStep, column: int, steps: int, generator: Any, streamer: Any) -> int:
    """Run so many steps, or fewer if every sequence ends before; returns how many.

    What a step has chosen is read while the next one runs, so the GPU need not wait for Python. If the sequences had ended, that next step
    was one too many: all that it leaves behind is the state of the random number generator, which is restored.
    """
    if streamer is None and step.choice.ends is None:
        for _ in range(steps):
            step.step()
        if generator is not None:
            _check(step.log[column : column + steps])
        return steps
    for done in range(steps):
        before = generator.get_state() if generator is not None else None
        step.step()
        step.send(column + done)
        if done and not _goes_on(step.receive(1), streamer):
            if generator is not None:
                generator.set_state(before)
            return done
    _goes_on(step.receive(0), streamer)
    return steps


def _goes_on(row: Any, streamer: Any) -> bool:
    """Pass the tokens of a step to the streamer. Returns whether a sequence goes on after them."""
    _check(row)
    if streamer is not None:
        streamer.put(row[0])
    return bool(row[1].any())


def _check(rows: Any) -> None:
    if rows[..., 2, :].any():
        raise RuntimeError(_NAN_ERROR)


def _generator(device: Any) -> Any:
    """Return the random number generator that `torch.multinomial` draws from."""
    if device.type == "cuda":
        return torch.cuda.default_generators[device.index or 0]
    return torch.default_generator


def token_name(cache: Any) -> str:
    """Return the argument for the tokens of a model with such a cache."""
    return "decoder_input_ids" if isinstance(cache, EncoderDecoderCache) else "input_ids"


def model_inputs(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inputs with the output of the encoder as the model expects it."""
    encoded = inputs.get("encoder_outputs")
    return {**inputs} if encoded is None else {**inputs, "encoder_outputs": BaseModelOutput(last_hidden_state=encoded)}


def same_inputs(expected: Mapping[str, Any], actual: Mapping[str, Any]) -> bool:
    """Whether the inputs of a step are those that were expected."""
    return expected.keys() == actual.keys() and all(
        torch.equal(value, actual[name]) if isinstance(value, torch.Tensor) else value == actual[name]
        for name, value in expected.items()
    )
