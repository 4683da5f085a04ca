"""Programs that call a step many times: text generation, requests of changing length, training.

Each is a module with a submodule named `step`. The method under test is applied to `step`, and the whole program is timed.
"""

from functools import wraps
from typing import Any

import torch
from torch import nn

_CACHE_TOKENS = 128


class OneToken(nn.Module):  # type: ignore[misc]
    """One decoding step with a static key-value cache."""

    def __init__(self, model: nn.Module, cache: Any) -> None:
        super().__init__()
        self.model = model
        self.cache = cache

    def forward(self, ids: Any, mask: Any) -> Any:
        """Return the logits of the next token."""
        return self.model(input_ids=ids, attention_mask=mask, past_key_values=self.cache, use_cache=True).logits


class Generates(nn.Module):  # type: ignore[misc]
    """Greedy decoding through transformers' own `generate` with a static cache."""

    def __init__(self, model: Any, new_tokens: int = 32) -> None:
        super().__init__()
        self.model = model
        self.step = OneToken(model, None)
        self.new_tokens = new_tokens
        self._new_cache()

    def _new_cache(self) -> None:
        from transformers import StaticCache

        self.cache = self.step.cache = StaticCache(config=self.model.config, max_cache_len=_CACHE_TOKENS)

    def _apply(self, *args: Any, **kwargs: Any) -> Any:
        """Move the module to another device or dtype, which needs a new cache."""
        moved = super()._apply(*args, **kwargs)
        self._new_cache()
        return moved

    def forward(self, prompt: Any) -> Any:
        """Return the prompt and the generated tokens."""
        self.cache.reset()
        original_forward = self.model.forward

        @wraps(original_forward)  # `generate` inspects the signature, and passes a mask only if it is accepted
        def forward_step(*args: Any, **kwargs: Any) -> Any:
            ids, mask = kwargs.get("input_ids"), kwargs.get("attention_mask")
            if ids is None or ids.shape[1] > 1 or mask is None:
                return original_forward(*args, **kwargs)
            self.model.forward = original_forward  # the step itself calls the original
            try:
                return self._output(self.step(ids, mask))
            finally:
                self.model.forward = forward_step

        self.model.forward = forward_step
        try:
            return self.model.generate(
                prompt,
                max_new_tokens=self.new_tokens,
                min_new_tokens=self.new_tokens,
                do_sample=False,
                past_key_values=self.cache,
                disable_compile=True,
            )
        finally:
            self.model.forward = original_forward

    def _output(self, scores: Any) -> Any:
        from transformers.modeling_outputs import CausalLMOutputWithPast

        return CausalLMOutputWithPast(logits=scores, past_key_values=self.cache)


class Stream(nn.Module):  # type: ignore[misc]
    """Requests of changing length, one after the other."""

    def __init__(self, step: nn.Module, requests: int = 40, longest: int = 256) -> None:
        super().__init__()
        self.step = step
        generator = torch.Generator().manual_seed(0)
        self.lengths = torch.randint(1, longest + 1, (requests,), generator=generator).tolist()

    def forward(self, ids: Any, mask: Any) -> Any:
        """Return the first vector of every result."""
        # Cloned, because reduce-overhead overwrites a result with the next one.
        return torch.cat([self.step(ids[:, :n], mask[:, :n])[:, :1].clone() for n in self.lengths], 1)


class Trains(nn.Module):  # type: ignore[misc]
    """Forward and backward of one batch; gradients are reset by the next call."""

    def __init__(self, step: nn.Module) -> None:
        super().__init__()
        self.step = step

    def forward(self, x: Any) -> Any:
        """Return the loss and the norms of all gradients."""
        with torch.enable_grad():
            loss = self.step(x).float().square().mean()
            for parameter in self.parameters():
                parameter.grad = None
            loss.backward()
        norms = [p.grad.float().norm() for p in self.parameters() if p.grad is not None]
        return torch.stack([loss.detach(), *norms])
