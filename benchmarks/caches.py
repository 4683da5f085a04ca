"""A decode step of a Llama with its cache as an argument: milliseconds in eager and through `rs.capture`, for each kind of cache.

    python -m benchmarks.caches                                # 12 layers in bfloat16
    python -m benchmarks.caches --layers 2 --words 64 --steps 4   # a try without a GPU

Each way decodes the same tokens after the same prompt, and its logits are compared with those of eager with the same kind of cache.
"""

import argparse
import copy
import statistics
import time
from collections.abc import Callable
from typing import Any, Final

import torch
import transformers

import rocsolid as rs
from benchmarks.models import LLAMA
from rocsolid.numerics import relative_error

_CACHE: Final = 256
_PROMPT: Final = 16
_WARMUP: Final = 4  # calls that may capture or compare


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _decode(call: Callable[..., Any], cache: Any, prompt: Any, tokens: Any) -> tuple[list[Any], list[float]]:
    """Decode these tokens; returns the logits of each step, and its milliseconds."""
    call(prompt, past_key_values=cache)
    logits, times = [], []
    for token in tokens:
        _wait()
        begun = time.perf_counter()
        result = call(token, past_key_values=cache)
        _wait()
        times.append((time.perf_counter() - begun) * 1e3)
        logits.append(result.logits)
    return logits, times


def main() -> None:
    """Print a line for each way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--words", type=int, default=32000, help="size of the vocabulary")
    parser.add_argument("--steps", type=int, default=100)
    args = parser.parse_args()
    device, backend = ("cuda", "auto") if torch.cuda.is_available() else ("cpu", "record")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**{**LLAMA, "num_hidden_layers": args.layers, "vocab_size": args.words})
    model = transformers.LlamaForCausalLM(config).eval().to(device, torch.bfloat16)
    prompt = torch.randint(1, args.words, (1, _PROMPT), device=device)
    tokens = torch.randint(1, args.words, (args.steps + _WARMUP, 1, 1), device=device)

    def static() -> Any:
        return transformers.StaticCache(config=config, max_cache_len=_CACHE)

    def dynamic() -> Any:
        return transformers.DynamicCache(config=config)

    bucket = {"past_key_values": rs.Bucket(dim=2, sizes=[_CACHE])}
    ways: dict[str, tuple[Callable[[], Any], dict[str, Any] | None]] = {
        "StaticCache, eager": (static, None),
        "StaticCache, rs.capture": (static, {}),
        "StaticCache, rs.capture(static=...)": (static, {"static": ("past_key_values",)}),
        "DynamicCache, eager": (dynamic, None),
        "DynamicCache, rs.capture(buckets=...)": (dynamic, {"buckets": bucket}),
    }
    expected: list[Any] = []
    models = [copy.deepcopy(model) for _ in ways]  # a copy made in inference mode would count as written to
    with torch.inference_mode():
        for own, (name, (make, options)) in zip(models, ways.items(), strict=True):
            call = own if options is None else rs.capture(own, backend=backend, **options)
            cache = make()
            logits, times = _decode(call, cache, prompt, tokens)
            expected = logits if options is None else expected
            error = max(relative_error(want, got) for want, got in zip(expected, logits, strict=True))
            report = call.report() if options is not None else None
            print(
                f"{name}: {statistics.median(times[_WARMUP:]):.3f} ms, largest relative error {error:.1e}", flush=True
            )
            if report is not None:
                print(f"  {report.replays} replays, {dict(report.eager_calls)}, {[x.message for x in report.refusals]}")


if __name__ == "__main__":
    main()
