"""Compare the shipped kernels with Inductor's code at the shapes of the denoiser, and write an evidence record.

    python scripts/measure_kernels.py --out evidence/kernels-on-h200.json
    python scripts/measure_kernels.py --quick              # a table for the shapes of five models, within a minute
    python scripts/measure_kernels.py --sweep --budget 150 # measure tiles, write the table that the kernels use

Each operator is compiled twice: as shipped, and as the plain function it replaces (attention and the norm also as torch's own fused
function). The results are compared first. Then each variant is captured, with many calls on different inputs in one CUDA graph, so many
that weights come from memory as in a model, and the graphs are replayed in interleaved rounds, so that drift affects all of them
equally. `layer` uses the operators in a whole layer, where a
shipped kernel can cost more than it gains, because nothing is fused into it. Needs a GPU.
"""

import argparse
import os
import statistics
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kernel_shapes
from rocsolid.measure.evidence import evidence, write

TOKENS, PREFIX, WIDTH, HEADS, WIDE = 50, 800, 1024, 8, 4096
# Rows, inner dimension and columns: of BERT, of the denoiser, of GPT-2 with 64 tokens.
PRODUCTS = ((128, 768, 768), (128, 3072, 768), (50, 1024, 1024), (50, 4096, 1024), (64, 768, 768), (64, 3072, 768))
MIN_CALLS, MAX_CALLS, ROUNDS, REPLAYS, WARMUPS = 32, 256, 15, 20, 3
COLD_BYTES = 150 << 20  # of the inputs of all calls: three times the L2 cache of an H200
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


def calls_of(inputs: tuple[Any, ...]) -> int:
    """How many calls with different inputs read so much that no input is in the cache."""
    size: int = sum(t.numel() * t.element_size() for t in inputs)
    return min(MAX_CALLS, max(MIN_CALLS, -(-COLD_BYTES // size)))


def captured(function: Function, make_inputs: Callable[[], tuple[Any, ...]], calls: int) -> Callable[[], object]:
    """Capture many calls in one CUDA graph, each with different inputs."""
    import torch

    inputs = [make_inputs() for _ in range(calls)]
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


def timed_us(call: Callable[[], object], calls: int) -> float:
    """Microseconds per call of the function, by CUDA events."""
    import torch

    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(REPLAYS):
        call()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) * 1e3 / (REPLAYS * calls)


def measure(name: str, variants: dict[str, Function], make_inputs: Callable[[], tuple[Any, ...]]) -> dict[str, Any]:
    """Check the results of the variants, capture them, and time them in interleaved rounds."""
    import torch

    torch._dynamo.reset()
    reference = variants["inductor"]
    compiled = {label: torch.compile(function, fullgraph=True) for label, function in variants.items()}
    inputs = make_inputs()
    errors = {label: error_of(function, reference, inputs) for label, function in compiled.items()}
    calls = calls_of(inputs)
    graphs = {label: captured(function, make_inputs, calls) for label, function in compiled.items()}
    times: dict[str, list[float]] = {label: [] for label in variants}
    for round_index in range(ROUNDS + 1):
        order = list(graphs) if round_index % 2 else list(reversed(graphs))
        for label in order:
            time_us = timed_us(graphs[label], calls)
            if round_index:  # round 0 is the warm-up
                times[label].append(time_us)
    medians = {label: statistics.median(found) for label, found in times.items()}
    rival = min((label for label in medians if label != "shipped"), key=lambda label: medians[label])
    ratios = sorted(r / s for r, s in zip(times[rival], times["shipped"], strict=True))
    return {
        "operator": name,
        "calls_in_a_graph": calls,
        "medians_us": {label: round(value, 3) for label, value in medians.items()},
        "rounds_us": {label: [round(value, 3) for value in found] for label, found in times.items()},
        "relative_errors": {label: float(f"{value:.2e}") for label, value in errors.items()},
        "best_rival": rival,
        "speed_over_rival": round(statistics.median(ratios), 3),
        "speed_from_to": [round(ratios[1], 3), round(ratios[-2], 3)],
        "ship": statistics.median(ratios) >= MIN_SPEEDUP and ratios[-2] >= 1.0,
    }


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
    parser.add_argument("--only", nargs="*", default=[], help="operators to measure")
    parser.add_argument("--quick", action="store_true", help="print a short table for the shapes of five models")
    parser.add_argument(
        "--sweep", action="store_true", help="find the best tiles for these shapes, write the table of tiles"
    )
    parser.add_argument("--budget", type=float, default=150, help="seconds for --sweep")
    parser.add_argument("--tiles", type=Path, default=kernel_shapes.TABLE, help="the table that --sweep writes")
    parser.add_argument(
        "--processes", type=int, default=os.cpu_count() or 1, help="that compile for --quick and --sweep"
    )
    args = parser.parse_args()
    import torch

    if args.quick or args.sweep:  # before this process uses the GPU, because it forks
        measured = (
            kernel_shapes.sweep(args.budget, args.processes, args.tiles)
            if args.sweep
            else kernel_shapes.quick(args.processes)
        )
        with torch.no_grad():
            for line in measured:
                print(line, flush=True)
        return

    if not torch.cuda.is_available():
        sys.exit("no GPU: nothing to measure")
    import triton

    torch.manual_seed(0)
    with torch.no_grad():
        found = [measure(name, *case) for name, case in cases().items() if not args.only or name in args.only]
    print("\n".join(rows(found)))
    record = evidence(
        what="shipped kernels compared with Inductor's code for the same function, captured, bf16, at the shapes of the denoiser",
        command=" ".join(["python", *sys.argv]),
        triton=triton.__version__,
        shapes={"tokens": TOKENS, "prefix": PREFIX, "width": WIDTH, "heads": HEADS, "mlp": WIDE},
        rows=found,
    )
    if args.out:
        write(record, args.out)


if __name__ == "__main__":
    main()
