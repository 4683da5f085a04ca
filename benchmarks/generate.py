"""`generate` of transformers: milliseconds per token in eager, with its own static cache, and after `rs.optimize(model)`.

    python -m benchmarks.generate

A Llama of 12 layers with random weights in float32 and bfloat16, a prompt of 16 tokens, 64 new ones. Rounds are interleaved. The time
per token is that of a whole `generate`, prefill included, divided by the number of new tokens. Prints one line of JSON for each dtype.
"""

import argparse
import copy
import json
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import transformers

import rocsolid as rs
from benchmarks.models import LLAMA


def _ms_per_token(generate: Callable[..., Any], new_tokens: int) -> float:
    _finish()
    started = time.perf_counter()
    generate()
    _finish()
    return (time.perf_counter() - started) * 1e3 / new_tokens


def _finish() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def measure(dtype: torch.dtype, *, new_tokens: int, rounds: int, layers: int, rows: int) -> dict[str, Any]:
    """Compare the ways to generate, and return medians and whether the tokens are the same."""
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    config = transformers.LlamaConfig(**{**LLAMA, "num_hidden_layers": layers}, eos_token_id=None, pad_token_id=0)
    model = transformers.LlamaForCausalLM(config).eval().to(device, dtype)
    fast = rs.optimize(copy.deepcopy(model))
    options = {"max_new_tokens": new_tokens, "do_sample": False}
    prompt = torch.randint(1, 1000, (rows, 16), device=device)
    static = {"cache_implementation": "static", "disable_compile": True}
    ways = {
        "eager": partial(model.generate, prompt, **options),
        "eager, static cache": partial(model.generate, prompt, **options, **static),
        "rs.optimize": partial(fast.generate, prompt, **options),
    }
    started = time.perf_counter()
    first = ways["rs.optimize"]()
    _finish()
    first_s = time.perf_counter() - started
    tokens = {name: generate().tolist() for name, generate in ways.items()}
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, generate in ways.items():
            times[name].append(_ms_per_token(generate, new_tokens))
    return {
        "dtype": str(dtype),
        "rows": rows,
        "ms_per_token": {name: round(statistics.median(found), 3) for name, found in times.items()},
        "same_tokens_as_eager": {name: found == tokens["eager"] for name, found in tokens.items()},
        "first_call_same": first.tolist() == tokens["eager"],
        "first_call_s": round(first_s, 2),
        "explain": str(fast.explain()).splitlines(),
    }


def main() -> None:
    """Measure, and print one line for each dtype."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--layers", type=int, default=LLAMA["num_hidden_layers"])
    parser.add_argument("--rows", type=int, default=1)
    chosen = parser.parse_args()
    for dtype in (torch.float32, torch.bfloat16):
        found = measure(
            dtype, new_tokens=chosen.new_tokens, rounds=chosen.rounds, layers=chosen.layers, rows=chosen.rows
        )
        print(json.dumps(found, ensure_ascii=False), flush=True)


if __name__ == "__main__":
    main()
