"""`generate` of transformers: milliseconds per token in eager, with its own static cache, and after `rs.optimize(model)`.

    python -m benchmarks.generate

A Llama of 12 layers with random weights in float32 and bfloat16, a prompt of 16 tokens, 64 new ones: greedily without a compiled decode
step, with one that has the numerics of eager (`limit=0`), with one that may differ, by sampling, and with a streamer. Rounds are interleaved. The time per
token is that of a whole `generate`, prefill included, divided by the number of new tokens. The time of a `generate` with one new token is
what all others are without their decode steps.
Prints a table for each dtype; `--json` prints one line of JSON instead.
"""

import argparse
import copy
import json
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import torch
import transformers

import rocsolid as rs
from benchmarks.models import LLAMA

_LIMIT: Final = 0.03  # how much the logits of a compiled step may differ from eager


def _ms_per_token(generate: Callable[..., Any], new_tokens: int) -> float:
    _finish()
    started = time.perf_counter()
    generate()
    _finish()
    return (time.perf_counter() - started) * 1e3 / new_tokens


def _finish() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


class _Streamer:
    """Takes the tokens and does nothing with them."""

    def put(self, value: Any) -> None:
        """Take the prompt or the tokens of a step."""

    def end(self) -> None:
        """Take the end."""


def measure(dtype: torch.dtype, *, new_tokens: int, rounds: int, layers: int, rows: int) -> dict[str, Any]:
    """Compare the ways to generate, and return medians and whether the tokens are the same."""
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    config = transformers.LlamaConfig(**{**LLAMA, "num_hidden_layers": layers}, eos_token_id=None, pad_token_id=0)
    model = transformers.LlamaForCausalLM(config).eval().to(device, dtype)
    fast = rs.optimize(copy.deepcopy(model))
    exact = rs.optimize(copy.deepcopy(model), limit=0)
    compiled = rs.optimize(copy.deepcopy(model), limit=_LIMIT)
    prompt = torch.randint(1, 1000, (rows, 16), device=device)
    static = {"cache_implementation": "static", "disable_compile": True}
    # An id that the model does not return: each token is read to find the end.
    never = {"eos_token_id": config.vocab_size}
    sampling = {"do_sample": True, "temperature": 0.8, "top_k": 50, "top_p": 0.95}
    ways: dict[str, tuple[Any, dict[str, Any]]] = {
        "eager": (model, {}),
        "eager, static cache": (model, static),
        "rs.optimize": (fast, {}),
        "rs.optimize, limit=0": (exact, {}),
        f"rs.optimize, limit={_LIMIT}": (compiled, {}),
        "rs.optimize, with an end token": (fast, never),
        "rs.optimize, streamer": (fast, {"streamer": _Streamer()}),
        "eager, sampling": (model, sampling),
        "rs.optimize, sampling": (fast, sampling),
    }

    def generate(name: str, tokens: int = new_tokens) -> Any:
        chosen, options = ways[name]
        torch.manual_seed(1)
        return chosen.generate(prompt, **{"max_new_tokens": tokens, "do_sample": False, **options})

    started = time.perf_counter()
    first = generate("rs.optimize")
    _finish()
    first_s = time.perf_counter() - started
    for _ in range(3):  # a prompt is captured with the second use of its length, and compared with eager in the third
        tokens = {name: generate(name).tolist() for name in ways}
    times: dict[str, list[float]] = {name: [] for name in ways}
    one_token: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name in ways:
            times[name].append(_ms_per_token(partial(generate, name), new_tokens))
            one_token[name].append(_ms_per_token(partial(generate, name, 1), 1))
    return {
        "dtype": str(dtype),
        "rows": rows,
        "new_tokens": new_tokens,
        "ms_per_token": {name: round(statistics.median(found), 3) for name, found in times.items()},
        "ms_of_one_token": {name: round(statistics.median(found), 3) for name, found in one_token.items()},
        "same_tokens_as_eager": {
            name: found == tokens["eager, sampling" if "sampling" in name else "eager"]
            for name, found in tokens.items()
        },
        "first_call_same": first.tolist() == tokens["eager"],
        "first_call_s": round(first_s, 2),
        "explain": [*str(fast.explain()).splitlines(), *str(compiled.explain()).splitlines()],
    }


def _table(found: dict[str, Any]) -> str:
    same = {True: "yes", False: "no"}
    lines = [f"{found['dtype']}, rows: {found['rows']}, new tokens: {found['new_tokens']}"]
    lines.append(f"{'':32}{'ms per token':>12}{'one token':>12}  same tokens as eager")
    lines += [
        f"{name:32}{ms:12.3f}{found['ms_of_one_token'][name]:12.3f}  {same[found['same_tokens_as_eager'][name]]}"
        for name, ms in found["ms_per_token"].items()
    ]
    return "\n".join([*lines, f"first call: {found['first_call_s']} s", *found["explain"], ""])


def main() -> None:
    """Measure, and print the results of each dtype."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--layers", type=int, default=LLAMA["num_hidden_layers"])
    parser.add_argument("--rows", type=int, default=1)
    parser.add_argument("--dtype", nargs="*", default=["float32", "bfloat16"], choices=["float32", "bfloat16"])
    parser.add_argument("--json", action="store_true", help="print one line of JSON for each dtype")
    chosen = parser.parse_args()
    for dtype in (getattr(torch, name) for name in chosen.dtype):
        found = measure(
            dtype, new_tokens=chosen.new_tokens, rounds=chosen.rounds, layers=chosen.layers, rows=chosen.rows
        )
        print(json.dumps(found, ensure_ascii=False) if chosen.json else _table(found), flush=True)


if __name__ == "__main__":
    main()
