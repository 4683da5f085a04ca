"""`generate` of transformers: milliseconds per token in eager, with its own static cache, and after `rs.optimize(model)`.

    python -m benchmarks.generate
    python -m benchmarks.generate --dtype bfloat16 --rounds 3 --ways eager 'rs.optimize, limit=0' --out /tmp/generate.json

A Llama of 12 layers with random weights in float32 and bfloat16, a prompt of 16 tokens, 64 new ones: greedily without a compiled decode
step, with one that has the numerics of eager (`limit=0`), with one that may differ, by sampling, and with a streamer. Rounds are interleaved. The time per
token is that of a whole `generate`, prefill included, divided by the number of new tokens. The time of a `generate` with one new token is
what all others are without their decode steps.
Prints a table for each dtype; `--json` prints one line of JSON instead. `--out` is written again after each round.
"""

import argparse
import copy
import json
import shlex
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
import transformers

import rocsolid as rs
from benchmarks.models import LLAMA
from rocsolid.measure.evidence import evidence, write

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


WAYS: Final = (
    "eager",
    "eager, static cache",
    "rs.optimize",
    "rs.optimize, limit=0",
    f"rs.optimize, limit={_LIMIT}",
    "rs.optimize, with an end token",
    "rs.optimize, streamer",
    "eager, sampling",
    "rs.optimize, sampling",
)


def measure(
    dtype: torch.dtype, *, names: Sequence[str], new_tokens: int, rounds: int, layers: int, rows: int
) -> Iterator[dict[str, Any]]:
    """Compare ways to generate; yields medians and whether the tokens are the same, after each round."""
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    config = transformers.LlamaConfig(**{**LLAMA, "num_hidden_layers": layers}, eos_token_id=None, pad_token_id=0)
    model = transformers.LlamaForCausalLM(config).eval().to(device, dtype)
    fast = rs.optimize(copy.deepcopy(model))
    exact = rs.optimize(copy.deepcopy(model), limit=0)
    compiled = rs.optimize(copy.deepcopy(model), limit=_LIMIT)
    prompt = torch.randint(1, 1000, (rows, 16), device=device)
    sampling = {"do_sample": True, "temperature": 0.8, "top_k": 50, "top_p": 0.95}
    how: dict[str, tuple[Any, dict[str, Any]]] = {
        "eager": (model, {}),
        "eager, static cache": (model, {"cache_implementation": "static", "disable_compile": True}),
        "rs.optimize": (fast, {}),
        "rs.optimize, limit=0": (exact, {}),
        f"rs.optimize, limit={_LIMIT}": (compiled, {}),
        # An id that the model does not return: each token is read to find the end.
        "rs.optimize, with an end token": (fast, {"eos_token_id": config.vocab_size}),
        "rs.optimize, streamer": (fast, {"streamer": _Streamer()}),
        "eager, sampling": (model, sampling),
        "rs.optimize, sampling": (fast, sampling),
    }

    def generate(name: str, tokens: int = new_tokens) -> Any:
        chosen, options = how[name]
        torch.manual_seed(1)
        return chosen.generate(prompt, **{"max_new_tokens": tokens, "do_sample": False, **options})

    def as_eager(name: str) -> Any:
        return generate("eager, sampling" if "sampling" in name else "eager").tolist()

    found: dict[str, Any] = {
        "dtype": str(dtype),
        "rows": rows,
        "new_tokens": new_tokens,
        "rounds": 0,
        "ms_per_token": {},
        "ms_of_one_token": {},
        "same_tokens_as_eager": {},
        "set_up_s": {},
    }
    for name in names:
        started = time.perf_counter()
        # A prompt is captured with the second use of its length, and compared with eager in the third.
        tokens = [generate(name).tolist() for _ in range(4)]
        found["set_up_s"][name] = round(time.perf_counter() - started, 2)
        found["same_tokens_as_eager"][name] = all(each == as_eager(name) for each in tokens)
        print(f"{name}: set up in {found['set_up_s'][name]} s", file=sys.stderr, flush=True)
    times: dict[str, list[float]] = {name: [] for name in names}
    one_token: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds):
        for name in names:
            times[name].append(_ms_per_token(partial(generate, name), new_tokens))
            one_token[name].append(_ms_per_token(partial(generate, name, 1), 1))
        found["rounds"] = number + 1
        found["ms_per_token"] = {name: round(statistics.median(each), 3) for name, each in times.items()}
        found["ms_of_one_token"] = {name: round(statistics.median(each), 3) for name, each in one_token.items()}
        found["explain"] = [line for one in (fast, exact, compiled) for line in str(one.explain()).splitlines()]
        yield found


def _table(found: dict[str, Any]) -> str:
    same = {True: "yes", False: "no"}
    lines = [f"{found['dtype']}, rows: {found['rows']}, new tokens: {found['new_tokens']}, rounds: {found['rounds']}"]
    lines.append(f"{'':32}{'ms per token':>12}{'one token':>12}{'set-up, s':>11}  same tokens as eager")
    lines += [
        f"{name:32}{ms:12.3f}{found['ms_of_one_token'][name]:12.3f}{found['set_up_s'][name]:11.1f}"
        f"  {same[found['same_tokens_as_eager'][name]]}"
        for name, ms in found["ms_per_token"].items()
    ]
    return "\n".join([*lines, *found["explain"], ""])


def main() -> None:
    """Measure, and print the results of each dtype."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--layers", type=int, default=LLAMA["num_hidden_layers"])
    parser.add_argument("--rows", type=int, default=1)
    parser.add_argument("--dtype", nargs="*", default=["float32", "bfloat16"], choices=["float32", "bfloat16"])
    parser.add_argument("--ways", nargs="*", default=WAYS, choices=WAYS, metavar="WAY", help="default: all")
    parser.add_argument("--json", action="store_true", help="print one line of JSON for each dtype")
    parser.add_argument("--out", type=Path, help="write the results here")
    chosen = parser.parse_args()
    facts: dict[str, Any] = {}
    for dtype in chosen.dtype:
        sizes = {"new_tokens": chosen.new_tokens, "rounds": chosen.rounds, "layers": chosen.layers, "rows": chosen.rows}
        for found in measure(getattr(torch, dtype), names=chosen.ways, **sizes):
            facts[dtype] = found
            if chosen.out:
                command = f"python -m benchmarks.generate {shlex.join(sys.argv[1:])}"
                what = f"`generate` of a Llama of {chosen.layers} layers with random weights, a prompt of 16 tokens."
                write(evidence(what=what, command=command, facts=facts), chosen.out)
        print(json.dumps(facts[dtype], ensure_ascii=False) if chosen.json else _table(facts[dtype]), flush=True)


if __name__ == "__main__":
    main()
