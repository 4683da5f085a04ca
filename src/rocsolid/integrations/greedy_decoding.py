"""Greedy decoding of transformers with one replay per token: the graph also chooses the token and stores it.

`generate` of transformers runs the prompt and chooses the first token. All that its loop would do for the others is in the graph, so
Python only replays it, and reads whether a sequence goes on. Anything else than plain greedy decoding stays in the loop of transformers.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from transformers import EosTokenCriteria, MaxLengthCriteria, StoppingCriteriaList

from rocsolid.runtime.capture.captured import Captured


class TokenStep:
    """A captured step from one token to the next. What it reads and writes is in tensors of a fixed size, one column for each token.

    `ends` are the ids that end a sequence and the id after its end; None if only the length ends it.
    """

    def __init__(
        self,
        model: Any,
        cache: Any,
        capture: Callable[[Any], Captured],
        tokens: Any,
        inputs: Mapping[str, Any],
        ends: Any,
    ) -> None:
        goes_on = torch.ones_like(tokens)
        column = tokens.new_zeros(1)
        inputs = {name: value.clone() if isinstance(value, torch.Tensor) else value for name, value in inputs.items()}
        position = inputs.get("position_ids")
        self.tokens, self.goes_on, self.column, self.inputs = tokens, goes_on, column, inputs

        def step() -> Any:
            token = tokens.index_select(1, column)
            result = model(input_ids=token, **inputs, past_key_values=cache, return_dict=True)
            chosen = result.logits[:, -1].to(copy=True, dtype=torch.float32).argmax(dim=-1)
            still_on = goes_on.index_select(1, column)[:, 0]
            if ends is not None:
                end_ids, padding = ends
                chosen = chosen * still_on + padding * (1 - still_on)
                still_on = still_on & ~torch.isin(chosen, end_ids)
            column.add_(1)
            if position is not None:
                position.add_(1)
            tokens.index_copy_(1, column, chosen[:, None])
            goes_on.index_copy_(1, column, still_on[:, None])
            return still_on.max()

        def undo() -> None:
            column.sub_(1)
            if position is not None:
                position.sub_(1)
            for layer in cache.layers:  # keys and values of the same token are written again
                layer.cumulative_length.sub_(1)

        self.step = capture(step).with_undo(undo)

    def start(self, tokens: Any, inputs: Mapping[str, Any], goes_on: Any) -> None:
        """Continue from these tokens; the last one was not given to the model yet."""
        self.tokens[:, : tokens.shape[1]] = tokens
        self.column.fill_(tokens.shape[1] - 1)
        self.goes_on[:, tokens.shape[1] - 1] = goes_on
        for name, value in inputs.items():
            if isinstance(value, torch.Tensor):
                self.inputs[name].copy_(value)


def is_plain_greedy(given: Mapping[str, Any]) -> bool:
    """Whether arguments of transformers' loop mean greedy decoding that ends at a length or a token."""
    config = given["generation_config"]
    return (
        not config.do_sample
        and not config.return_dict_in_generate
        and not getattr(config, "is_assistant", False)
        and not given["logits_processor"]
        and given.get("streamer") is None
        and not given.get("synced_gpus")
        and given.get("inputs_embeds") is None
        and {type(one) for one in given["stopping_criteria"]} <= {MaxLengthCriteria, EosTokenCriteria}
        and any(type(one) is MaxLengthCriteria for one in given["stopping_criteria"])
    )


def decode_greedily(cache: Any, loop: Callable[..., Any], prompt: Any, given: Mapping[str, Any]) -> Any:
    """Return the tokens that transformers' loop would return.

    The loop runs for the first token, and the first time for a second one, to compare the inputs of its step with ours.
    """
    criteria = given["stopping_criteria"]
    length = min(one.max_length for one in criteria if type(one) is MaxLengthCriteria)
    others = [one for one in criteria if type(one) is not MaxLengthCriteria]
    cache.replays_steps = False
    by_loop = prompt.shape[1] + (1 if cache.inputs_are_known else 2)
    shorter = StoppingCriteriaList([MaxLengthCriteria(max_length=min(length, by_loop)), *others])
    tokens = loop(prompt, **{**given, "stopping_criteria": shorter})
    cache.replays_steps = True
    ends: tuple[Any, Any] | None = None
    goes_on = torch.ones_like(tokens[:, 0])
    if others:
        end_ids = torch.cat([one.eos_token_id.to(prompt.device).flatten() for one in others])
        ends = end_ids, given["generation_config"]._pad_token_tensor.to(prompt.device)  # noqa: SLF001 - as in its loop
        goes_on = goes_on & ~torch.isin(tokens[:, prompt.shape[1] :], end_ids).any(dim=1)
    while tokens.shape[1] < length and (ends is None or bool(goes_on.any())):
        inputs = cache.next_inputs(tokens.shape[0])
        if inputs is None:
            cache.restart()
            return loop(prompt, **given)
        step = cache.token_step(tokens, inputs, ends)
        step.start(tokens, inputs, goes_on)
        steps = _run(step, min(length - tokens.shape[1], cache.room), waits=ends is not None)
        cache.advance(steps)
        end = tokens.shape[1] + steps
        tokens, goes_on = step.tokens[:, :end].clone(), step.goes_on[:, end - 1].clone()
    return tokens


def _run(step: TokenStep, steps: int, *, waits: bool) -> int:
    """Run so many steps, or fewer if every sequence ends before; returns how many."""
    for done in range(1, steps + 1):
        any_goes_on = step.step()
        if waits and not any_goes_on.item():
            return done
    return steps


def same_inputs(expected: Mapping[str, Any], actual: Mapping[str, Any]) -> bool:
    """Whether the inputs of a step are those that were expected."""
    return expected.keys() == actual.keys() and all(
        torch.equal(value, actual[name]) if isinstance(value, torch.Tensor) else value == actual[name]
        for name, value in expected.items()
    )
