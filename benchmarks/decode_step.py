"""One decode step of a Llama with several ways to compile it: milliseconds, kernels, and how often its logits are those of eager.

    python -m benchmarks.decode_step --out evidence/decode-step-on-h200.json

12 layers in bfloat16 with random weights and a static cache of 256 tokens. Each way is compiled, run for many steps next to eager on the
same cache, captured as a CUDA graph, and timed in interleaved rounds. `kernels` are the operations of the graph; without a GPU there is
no graph and calls are timed. A line is printed for each way when it is ready.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import torch
import transformers

from benchmarks.models import LLAMA
from rocsolid.measure.evidence import evidence, write
from rocsolid.numerics import relative_error
from rocsolid.optimize.passes.eager_numerics import exact_options, use_eager_operators
from rocsolid.optimize.passes.merge_projections import SharedInputs, merge_projections
from rocsolid.torchapi.inductor.graph_pass import graph_pass

_CACHE: Final = 256
_PROMPT: Final = 16
_OPTION: Final = "post_grad_custom_pre_pass"


def ways() -> dict[str, dict[str, Any]]:
    """The options of each way; those with `merged` need adjacent weights, so they come last."""
    exact = exact_options()
    combined = {"combo_kernels": True}
    return {
        "compiled": {},
        "emulate_precision_casts": {"emulate_precision_casts": True},
        "exact": exact,
        "exact, combo_kernels": {**exact, **combined},
        "merged, combo_kernels": {_OPTION: graph_pass(merge_projections), **combined},
        "merged, exact": {**exact, _OPTION: graph_pass(merge_projections, use_eager_operators)},
        "merged, exact, combo_kernels": {
            **exact,
            **combined,
            _OPTION: graph_pass(merge_projections, use_eager_operators),
        },
    }


class Step:
    """A model with a static cache that holds a prompt; a call is one decode step, which the next call repeats."""

    def __init__(self, model: Any, call: Callable[..., Any], cache: Any) -> None:
        self.call, self.cache = call, cache
        self.token = torch.full((1, 1), 7, device=model.device)
        self.mask = torch.ones(1, _CACHE, dtype=torch.int64, device=model.device)

    def __call__(self) -> Any:
        """Run the step, and set the cache back by one token."""
        logits = self.call(self.token, past_key_values=self.cache, attention_mask=self.mask).logits
        for layer in self.cache.layers:
            layer.cumulative_length.sub_(1)
        return logits


def captured(step: Step) -> tuple[Callable[[], Any], int | None]:
    """The step as a CUDA graph, and how many kernels and copies it has; the step itself without a GPU."""
    if not torch.cuda.is_available():
        return step, None
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        step()
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        graph.replay()
        torch.cuda.synchronize()
    return graph.replay, sum(event.device_type == torch.autograd.DeviceType.CUDA for event in profiler.events())


def ms(run: Callable[[], Any], calls: int) -> float:
    """Milliseconds of one call, of so many in a row."""
    _finish()
    started = time.perf_counter()
    for _ in range(calls):
        run()
    _finish()
    return (time.perf_counter() - started) * 1e3 / calls


def _finish() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def measure(names: Iterable[str], *, layers: int, words: int, steps: int, rounds: int) -> dict[str, Any]:
    """Compile, compare and time each way."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**{**LLAMA, "num_hidden_layers": layers, "vocab_size": words})
    model = transformers.LlamaForCausalLM(config).eval().to(device, torch.bfloat16)
    prompt = torch.randint(1, words, (1, _PROMPT), device=device)
    tokens = torch.randint(1, words, (steps, 1, 1), device=device)

    def new_step(call: Callable[..., Any]) -> Step:
        cache = transformers.StaticCache(config=config, max_cache_len=_CACHE)
        model(prompt, past_key_values=cache)
        return Step(model, call, cache)

    plain = new_step(model)
    runs: dict[str, Callable[[], Any]] = {}
    facts: dict[str, Any] = {}
    runs["eager"], kernels = captured(plain)
    facts["eager"] = {"kernels": kernels}
    for name in names:
        if "merged" in name:
            shared = SharedInputs()
            with shared.watch(model):
                plain()
            shared.make_adjacent()
            # Earlier graphs read the memory that the weights had before: they are only timed from now on.
        torch._dynamo.reset()  # what was compiled stays in its graph
        started = time.perf_counter()
        step = new_step(torch.compile(model, dynamic=False, options=ways()[name]))
        step()
        _finish()
        compile_s = time.perf_counter() - started
        equal, tokens_equal, errors = 0, 0, []
        for token in tokens:
            plain.token.copy_(token)
            step.token.copy_(token)
            want, got = plain(), step().clone()
            equal += torch.equal(want, got)
            tokens_equal += torch.equal(want.argmax(-1), got.argmax(-1))
            errors.append(float(relative_error(got, want)))
        run, kernels = captured(step)
        facts[name] = {
            "kernels": kernels,
            "compile_s": round(compile_s, 1),
            "steps": steps,
            "bitwise_equal": equal,
            "same_token": tokens_equal,
            "largest_error": max(errors),
            "ms_at_once": round(ms(run, 50 if kernels else 3), 4),
        }
        if kernels:  # without a graph, another call would compile again
            runs[name] = run
        print(f"{name}: {facts[name]}", flush=True)
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            times[name].append(ms(run, 50 if facts[name]["kernels"] else 3))
    for name, found in times.items():
        facts[name]["median_ms"] = round(statistics.median(found), 4)
    return facts


def main() -> None:
    """Measure, print and store."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ways", nargs="*", default=[*ways()], choices=[*ways()])
    parser.add_argument("--layers", type=int, default=LLAMA["num_hidden_layers"])
    parser.add_argument("--words", type=int, default=LLAMA["vocab_size"])
    parser.add_argument("--steps", type=int, default=256, help="steps that are compared with eager")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with torch.no_grad():
        facts = measure(
            options.ways, layers=options.layers, words=options.words, steps=options.steps, rounds=options.rounds
        )
    print(f"{'':34}{'ms':>8}{'kernels':>9}{'bitwise equal':>15}{'same token':>12}")
    for name, found in facts.items():
        rows = [found.get(key) for key in ("median_ms", "kernels", "bitwise_equal", "same_token")]
        print(
            f"{name:34}{rows[0] or '':>8}{rows[1] or '':>9}{rows[2] if rows[2] is not None else '':>15}{rows[3] or '':>12}"
        )
    if options.out:
        with suppress(FileNotFoundError):
            options.out.unlink()
        what = "One decode step of a Llama of 12 layers in bfloat16, compiled in several ways, next to eager."
        write(evidence(what=what, command="python -m benchmarks.decode_step", facts=facts), options.out)


if __name__ == "__main__":
    main()
