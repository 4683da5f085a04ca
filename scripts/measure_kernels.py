"""Compare the shipped kernels with Inductor's code at the shapes of the denoiser, and write an evidence record.

    python scripts/measure_kernels.py --out evidence/kernels-on-h200.json

Each operator is compiled twice: as shipped, and as the plain function it replaces (attention and the norm also as torch's own fused
function). The results are compared first. Then each variant is captured, with many calls on different inputs in one CUDA graph, and
the graphs are replayed in interleaved rounds, so that drift affects all of them equally. `layer` uses the operators in a whole layer, where a
shipped kernel can cost more than it gains, because nothing is fused into it. Needs a GPU.
"""

import argparse
import itertools
import statistics
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rocsolid.measure.evidence import evidence, write

TOKENS, PREFIX, WIDTH, HEADS, WIDE = 50, 800, 1024, 8, 4096
# Rows, inner dimension and columns: of BERT, of the denoiser, of GPT-2 with 64 tokens.
PRODUCTS = ((128, 768, 768), (128, 3072, 768), (50, 1024, 1024), (50, 4096, 1024), (64, 768, 768), (64, 3072, 768))
CALLS, ROUNDS, REPLAYS, WARMUPS = 32, 15, 20, 3
# An operator is shipped if the median speed-up is at least this, and the interval contains 1.
MIN_SPEEDUP = 0.98
Function = Callable[..., Any]


def random(*shape: int) -> Any:
    """Random bfloat16 numbers on the GPU."""
    import torch

    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def cases() -> dict[str, tuple[dict[str, Function], Callable[[], tuple[Any, ...]]]]:
    """For each operator: its variants by name, the shipped one first, and a function that makes inputs."""
    import torch
    import torch.nn.functional as functional  # noqa: PLR0402 - `from torch.nn` would read worse

    from rocsolid.ops import shipped
    from rocsolid.ops.shipped import references

    def on_halves(function: Function) -> Function:
        return lambda gate_and_up: function(*gate_and_up.chunk(2, -1))

    head_dim = WIDTH // HEADS

    def attention_inputs() -> tuple[Any, ...]:
        keys = TOKENS + PREFIX
        return random(1, HEADS, TOKENS, head_dim), random(1, HEADS, keys, head_dim), random(1, HEADS, keys, head_dim)

    return {
        "rms_norm": (
            {
                "shipped": shipped.rms_norm,
                "inductor": references.rms_norm,
                "inductor, F.rms_norm": lambda x, w: functional.rms_norm(x, (WIDTH,), w, 1e-6),
            },
            lambda: (random(TOKENS, WIDTH), random(WIDTH)),
        ),
        "add_rms_norm": (
            {"shipped": torch.ops.rocsolid.add_rms_norm, "inductor": references.add_rms_norm},
            lambda: (random(TOKENS, WIDTH), random(TOKENS, WIDTH), random(WIDTH)),
        ),
        "silu_mul": (
            {
                "shipped": on_halves(torch.ops.rocsolid.silu_mul),
                "inductor": on_halves(references.silu_mul),
                "inductor, F.silu": on_halves(lambda g, u: functional.silu(g) * u),
            },
            lambda: (random(TOKENS, 2 * WIDE),),
        ),
        "gelu_mul": (
            {
                "shipped": on_halves(lambda g, u: shipped.gelu_mul(g, u, tanh=True)),
                "inductor": on_halves(lambda g, u: references.gelu_mul(g, u, tanh=True)),
                "inductor, F.gelu": on_halves(lambda g, u: functional.gelu(g, approximate="tanh") * u),
            },
            lambda: (random(TOKENS, 2 * WIDE),),
        ),
        "attention": (
            {
                "shipped": shipped.attention,
                "inductor": references.attention,
                "inductor, F.scaled_dot_product_attention": functional.scaled_dot_product_attention,
            },
            attention_inputs,
        ),
        "attention, keys in two tensors": (
            {
                "shipped": lambda q, k, v, a, b: shipped.attention(q, a, b, more=(k, v)),
                "inductor": lambda q, k, v, a, b: references.attention(q, torch.cat([a, k], 2), torch.cat([b, v], 2)),
                "inductor, F.scaled_dot_product_attention": lambda q, k, v, a, b: (
                    functional.scaled_dot_product_attention(q, torch.cat([a, k], 2), torch.cat([b, v], 2))
                ),
            },
            lambda: (
                *(random(1, HEADS, TOKENS, head_dim) for _ in range(3)),
                *(random(1, HEADS, PREFIX, head_dim) for _ in range(2)),
            ),
        ),
        "attention, padding mask": (
            {
                "shipped": lambda q, k, v: shipped.attention(q, k, v, mask=padding(q)),
                "inductor": lambda q, k, v: references.attention(q, k, v, mask=padding(q)),
                "inductor, F.scaled_dot_product_attention": lambda q, k, v: functional.scaled_dot_product_attention(
                    q, k, v, attn_mask=padding(q)
                ),
            },
            lambda: tuple(random(1, 12, 128, 64) for _ in range(3)),
        ),
        **{f"product {shape}, residual, norm": product_case(*shape) for shape in PRODUCTS},
        "layer": ({"shipped": layer(shipped), "inductor": layer(plain_operators())}, layer_inputs),
    }


def padding(q: Any) -> Any:
    """A padding mask as in BERT: the last keys of the batch are hidden."""
    import torch

    return (torch.arange(q.shape[2], device=q.device) < q.shape[2] - 10).expand(q.shape[0], 1, q.shape[2], q.shape[2])


def product_case(rows: int, inner: int, columns: int) -> tuple[dict[str, Function], Callable[[], tuple[Any, ...]]]:
    """A linear layer with few rows, the residual and the norm that follow it: the product in parts, and as torch computes it."""
    import torch
    import torch.nn.functional as functional  # noqa: PLR0402

    from rocsolid.ops.split_matmul import SPLIT_MATMUL, best_splits

    splits = max(2, best_splits(rows, inner, columns, torch.device("cuda", 0)))

    def in_parts(x: Any, weight: Any, residual: Any) -> Any:
        parts = SPLIT_MATMUL(x, weight.t(), splits)
        total = parts[0]
        for index in range(1, splits):
            total = total + parts[index]
        return functional.layer_norm(residual + total.to(x.dtype), (columns,))

    def plain(x: Any, weight: Any, residual: Any) -> Any:
        return functional.layer_norm(residual + functional.linear(x, weight), (columns,))

    return {"shipped": in_parts, "inductor": plain}, lambda: (
        random(rows, inner),
        random(columns, inner) * inner**-0.5,
        random(rows, columns),
    )


def plain_operators() -> Any:
    """The shipped operators in plain torch, with torch's own attention."""
    from types import SimpleNamespace

    import torch.nn.functional as functional  # noqa: PLR0402

    from rocsolid.ops.shipped import references

    return SimpleNamespace(
        rms_norm=references.rms_norm,
        add_rms_norm=references.add_rms_norm,
        silu_mul=references.silu_mul,
        attention=functional.scaled_dot_product_attention,
    )


def layer_inputs() -> tuple[Any, ...]:
    """Tokens, cached keys and values, and the weights of one layer."""
    scale = WIDTH**-0.5
    head_dim = WIDTH // HEADS
    return (
        random(TOKENS, WIDTH),
        random(1, HEADS, PREFIX, head_dim),
        random(1, HEADS, PREFIX, head_dim),
        random(WIDTH).abs(),
        random(3 * WIDTH, WIDTH) * scale,
        random(WIDTH, WIDTH) * scale,
        random(2 * WIDE, WIDTH) * scale,
        random(WIDTH, WIDE) * scale,
    )


def layer(ops: Any) -> Function:
    """One layer of the action expert: norm, attention over prefix and tokens, norm, gated MLP."""
    import torch

    def run(x: Any, keys: Any, values: Any, norm: Any, qkv: Any, out: Any, up: Any, down: Any) -> Any:
        q, k, v = (ops.rms_norm(x, norm) @ qkv.t()).view(1, TOKENS, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        k, v = torch.cat([keys, k], 2), torch.cat([values, v], 2)
        attended = ops.attention(q, k, v).transpose(1, 2).reshape(TOKENS, WIDTH)
        normed, total = ops.add_rms_norm(attended @ out.t(), x, norm)
        gate, rest = (normed @ up.t()).chunk(2, -1)
        return total + ops.silu_mul(gate, rest) @ down.t()

    return run


def flat(value: Any) -> list[Any]:
    """The tensors of a result."""
    return list(value) if isinstance(value, (tuple, list)) else [value]


def error_of(function: Function, reference: Function, inputs: tuple[Any, ...]) -> float:
    """The relative error to the reference in float32."""
    expected = flat(reference(*(value.float() for value in inputs)))
    results = flat(function(*inputs))
    return max(float((r.float() - e).norm() / e.norm()) for r, e in zip(results, expected, strict=True))


def captured(function: Function, make_inputs: Callable[[], tuple[Any, ...]]) -> Callable[[], object]:
    """Capture many calls in one CUDA graph, each with different inputs."""
    import torch

    inputs = [make_inputs() for _ in range(CALLS)]
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARMUPS):
            function(*inputs[0])
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    outputs: list[Any] = []
    with torch.cuda.graph(graph):
        outputs.extend(function(*given) for given in inputs)

    def replay() -> int:
        graph.replay()
        return len(outputs) + len(inputs)  # keeps alive what the graph reads and writes

    return replay


def timed_us(call: Callable[[], object]) -> float:
    """Microseconds per call of the function, by CUDA events."""
    import torch

    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(REPLAYS):
        call()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) * 1e3 / (REPLAYS * CALLS)


def measure(name: str, variants: dict[str, Function], make_inputs: Callable[[], tuple[Any, ...]]) -> dict[str, Any]:
    """Check the results of the variants, capture them, and time them in interleaved rounds."""
    import torch

    torch._dynamo.reset()
    reference = variants["inductor"]
    compiled = {label: torch.compile(function, fullgraph=True) for label, function in variants.items()}
    inputs = make_inputs()
    errors = {label: error_of(function, reference, inputs) for label, function in compiled.items()}
    graphs = {label: captured(function, make_inputs) for label, function in compiled.items()}
    times: dict[str, list[float]] = {label: [] for label in variants}
    for round_index in range(ROUNDS + 1):
        order = list(graphs) if round_index % 2 else list(reversed(graphs))
        for label in order:
            time_us = timed_us(graphs[label])
            if round_index:  # round 0 is the warm-up
                times[label].append(time_us)
    medians = {label: statistics.median(found) for label, found in times.items()}
    rival = min((label for label in medians if label != "shipped"), key=lambda label: medians[label])
    ratios = sorted(r / s for r, s in zip(times[rival], times["shipped"], strict=True))
    return {
        "operator": name,
        "medians_us": {label: round(value, 3) for label, value in medians.items()},
        "rounds_us": {label: [round(value, 3) for value in found] for label, found in times.items()},
        "relative_errors": {label: float(f"{value:.2e}") for label, value in errors.items()},
        "best_rival": rival,
        "speed_over_rival": round(statistics.median(ratios), 3),
        "speed_from_to": [round(ratios[1], 3), round(ratios[-2], 3)],
        "ship": statistics.median(ratios) >= MIN_SPEEDUP and ratios[-2] >= 1.0,
    }


def sweep() -> Iterator[str]:
    """Compare launch settings of the shipped kernels: number of splits, elements per lane."""
    from rocsolid.ops.shipped import launch

    variants = cases()
    attention_inputs, norm_inputs, gate_inputs = (
        variants["attention"][1],
        variants["rms_norm"][1],
        variants["silu_mul"][1],
    )
    defaults = {name: vars(launch)[name] for name in SWEPT}
    blocks = launch.attention_blocks
    for splits, warps, keys in itertools.product((1, 4, 7, 14), (4, 8), (32, 64)):
        vars(launch)["attention_blocks"] = lambda *_, w=warps, k=keys, **__: launch.AttentionBlocks(64, k, w, 2)
        graph = captured(
            lambda q, k, v, n=splits: launch.launch_attention(q, k, v, None, causal=False, splits=n), attention_inputs
        )
        yield f"attention, {splits} splits, {keys} keys, {warps} warps: {min(timed_us(graph) for _ in range(ROUNDS)):.2f} µs"
    vars(launch)["attention_blocks"] = blocks
    for elements in (2, 4, 8, 16):
        vars(launch)["_ELEMENTS_PER_LANE"] = elements
        norm = captured(lambda x, w: launch.launch_rms_norm(x, w, 1e-6), norm_inputs)
        gate = captured(lambda both: launch.launch_gate_mul(both[:, :WIDE], both[:, WIDE:], "silu"), gate_inputs)
        for name, graph in (("rms_norm", norm), ("silu_mul", gate)):
            yield f"{name}, {elements} elements per lane: {min(timed_us(graph) for _ in range(ROUNDS)):.2f} µs"
    yield from sweep_products()
    vars(launch).update(defaults)


SWEPT = ("_ELEMENTS_PER_LANE", "_MATMUL_WARPS", "_MATMUL_STAGES")


def sweep_products() -> Iterator[str]:
    """Compare blocks, splits, warps and stages of products with few rows; the time contains adding the parts, the residual and the norm."""
    import torch

    from rocsolid.ops import split_matmul
    from rocsolid.ops.shipped import launch

    previous = split_matmul.blocks, split_matmul.best_splits
    for shape in PRODUCTS:
        found = {}
        for block, splits, warps, stages in itertools.product(
            ((64, 32, 64), (64, 64, 64), (64, 32, 128), (32, 64, 64)), (2, 4, 8), (4, 8), (3, 5)
        ):
            vars(split_matmul).update(blocks=lambda _, b=block: b, best_splits=lambda *_, n=splits: n)
            vars(launch).update(_MATMUL_WARPS=warps, _MATMUL_STAGES=stages)
            torch._dynamo.reset()
            variants, make_inputs = product_case(*shape)
            graph = captured(torch.compile(variants["shipped"], fullgraph=True), make_inputs)
            found[f"blocks {block}, {splits} splits, {warps} warps, {stages} stages"] = min(
                timed_us(graph) for _ in range(3)
            )
        for text in sorted(found, key=lambda t: found[t])[:5]:
            yield f"product {shape}: {text}: {found[text]:.2f} µs"
    vars(split_matmul).update(blocks=previous[0], best_splits=previous[1])


def rows(found: list[dict[str, Any]]) -> Iterator[str]:
    """A Markdown table, to paste into the docs."""
    yield "| operator | shipped, µs | best of Inductor, µs | which | speed over it | shipped |"
    yield "|---|--:|--:|---|--:|---|"
    for row in found:
        times, rival = row["medians_us"], row["best_rival"]
        low, high = row["speed_from_to"]
        shipped = "yes" if row["ship"] else "no"
        yield (
            f"| {row['operator']} | {times['shipped']:.2f} | {times[rival]:.2f} | {rival} | "
            f"{row['speed_over_rival']:.2f} ({low:.2f}–{high:.2f}) | {shipped} |"
        )


def main() -> None:
    """Measure all or the named operators, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, help="write the record to this file")
    parser.add_argument(
        "--sweep", action="store_true", help="compare launch settings of the shipped kernels, write no record"
    )
    parser.add_argument("--only", nargs="*", default=[], help="operators to measure")
    args = parser.parse_args()
    import torch

    if not torch.cuda.is_available():
        sys.exit("no GPU: nothing to measure")
    import triton

    torch.manual_seed(0)
    if args.sweep:
        with torch.no_grad():
            print("\n".join(sweep()))
        return
    with torch.no_grad():
        found = [measure(name, *case) for name, case in cases().items() if not args.only or name in args.only]
    print("\n".join(rows(found)))
    record = evidence(
        what="shipped kernels compared with Inductor's code for the same function, captured, bf16, at the shapes of the denoiser",
        command=" ".join(["python", *sys.argv]),
        triton=triton.__version__,
        shapes={"tokens": TOKENS, "prefix": PREFIX, "width": WIDTH, "heads": HEADS, "mlp": WIDE},
        calls_in_a_graph=CALLS,
        rows=found,
    )
    if args.out:
        write(record, args.out)


if __name__ == "__main__":
    main()
