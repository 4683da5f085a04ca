"""The kernels at the shapes of five models: compare them with torch's (`--quick`), and find the best tiles (`--sweep`).

Used by `scripts/measure_kernels.py`. Weights are read from memory, as in a model: many copies take turns. Activations, and keys and
values that were just computed, are in the cache. Every time is that of a call in a CUDA graph of many calls.
"""

import datetime as dt
import itertools
import json
import multiprocessing
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, ProcessPoolExecutor, wait
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

import torch
import triton
import triton.language as tl

from rocsolid.ops import linear_act as act
from rocsolid.ops.shipped import launch, references, tiles
from rocsolid.ops.shipped.device import Gpu, gpu
from rocsolid.ops.shipped.tiles import Tile

DEVICE, DTYPE = "cuda:0", torch.bfloat16
TABLE: Final = Path(tiles.__file__).with_name("tiles.json")
_COLD_BYTES: Final = 150 << 20  # three times the L2 cache of an H200
_HOT_COPIES: Final = 16
_MOST_COPIES: Final = 256
_REPLAYS: Final = 5
_ROUNDS: Final = 3
_BANDWIDTH: Final = 4.8e12  # of an H200, bytes per second
_WORTH_IT: Final = 0.98  # of torch's time: our kernel is used from here on
_MAX_ERROR: Final = 1.5  # of torch's own
_COMPILING: Final = 0.6  # share of the budget of a sweep
Inputs = tuple[Any, ...]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A call of a kernel as a model does it. Sizes: rows, inner, columns; attention: heads, queries, keys, head_dim."""

    model: str
    kind: str
    sizes: tuple[int, ...]
    activation: str = "none"
    bias: bool = True
    row_major: bool = False  # the weight is not transposed, as in GPT-2
    mask: str = ""  # attention: padding, causal
    kv_heads: int = 0
    prefix: int = 0  # attention: so many of the keys are in another tensor, which is not in the cache

    @property
    def gated(self) -> bool:
        """Whether the weight has the rows of a gate, too."""
        return self.activation.endswith("_mul")

    @property
    def key(self) -> str:
        """The key of the table."""
        if self.kind == "attention":
            heads, queries, keys, head_dim = self.sizes
            return tiles.attention_key(heads, queries, keys, head_dim, DTYPE)
        rows, inner, columns = self.sizes
        return tiles.product_key(self.kind + (" gated" if self.gated else ""), rows, inner, columns, DTYPE)

    @property
    def variant(self) -> tuple[object, ...]:
        """What decides which machine code is used, besides the tile. Triton looks at which sizes are multiples of 16."""
        aligned = tuple(size % 16 == 0 for size in self.sizes)
        head_dim = self.sizes[-1] if self.kind == "attention" else 0
        options = (self.activation, self.bias, self.row_major, self.mask, self.prefix > 0)
        return self.kind, *options, head_dim, aligned

    def __str__(self) -> str:
        options = [self.activation] if self.kind == "linear_act" else [self.mask] if self.mask else []
        return " ".join([self.model, self.kind, *options, "x".join(map(str, self.sizes))])


def _transformer(model: str, rows: int, width: int, inner: int, activation: str, **options: Any) -> Iterator[Case]:
    kv_width = options.pop("kv_width", width)
    act_case = {"kind": "linear_act", "model": model, **options}
    yield Case(sizes=(rows, width, width + 2 * kv_width), **act_case)
    yield Case(sizes=(rows, width, inner), activation=activation, **act_case)
    yield Case(sizes=(rows, width, width), kind="split_matmul", model=model, **options)
    yield Case(sizes=(rows, inner, width), kind="split_matmul", model=model, **options)


CASES: Final = (
    *_transformer("bert", 128, 768, 3072, "gelu"),
    Case(model="bert", kind="attention", sizes=(12, 128, 128, 64), mask="padding"),
    *_transformer("gpt2", 64, 768, 3072, "gelu_tanh", row_major=True),
    Case(model="gpt2", kind="attention", sizes=(12, 64, 64, 64), mask="causal"),
    *_transformer("vit", 197, 768, 3072, "gelu"),
    Case(model="vit", kind="attention", sizes=(12, 197, 197, 64)),
    *_transformer("llama", 32, 1024, 2816, "silu_mul", bias=False, kv_width=256),
    Case(model="llama", kind="attention", sizes=(16, 32, 32, 64), mask="causal", kv_heads=4),
    *_transformer("denoiser", 50, 1024, 4096, "gelu", bias=False),
    Case(model="denoiser", kind="attention", sizes=(8, 50, 850, 128), prefix=800),
)


# Triton reads annotations of parameters, and knows only its own types.
@triton.jit  # type: ignore[untyped-decorator]
def add_parts_and_norm(  # type: ignore[no-untyped-def]  # noqa: ANN201
    parts,  # noqa: ANN001
    residual,  # noqa: ANN001
    out,  # noqa: ANN001
    total,  # noqa: ANN001
    rows,  # noqa: ANN001
    columns,  # noqa: ANN001
    SPLITS: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
):
    """What follows a product in a transformer, as Inductor computes it: add the parts and the residual, then a norm."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < columns
    value = tl.load(residual + row * columns + column, mask=inside, other=0.0).to(tl.float32)
    for split in range(SPLITS):
        value += tl.load(parts + (split * rows + row) * columns + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(total + row * columns + column, value.to(total.dtype.element_ty), mask=inside)
    value = tl.where(inside, value - tl.sum(value, 0) / columns, 0.0)
    value = value * tl.rsqrt(tl.sum(value * value, 0) / columns + 1e-5)
    tl.store(out + row * columns + column, value.to(out.dtype.element_ty), mask=inside)


def add_and_norm(parts: Any, residual: Any) -> Any:
    """Return the norm of the residual plus all parts."""
    splits, rows, columns = parts.shape
    out, total = torch.empty_like(residual), torch.empty_like(residual)
    block = triton.next_power_of_2(columns)
    add_parts_and_norm[(rows,)](parts, residual, out, total, rows, columns, SPLITS=splits, BLOCK=block, num_warps=4)
    return out


def make_inputs(case: Case) -> Callable[[], Inputs]:
    """Return a function that makes the inputs of a call. Those that are in the cache in a model are the same in every call."""

    def random(*shape: int) -> Any:
        return torch.randn(*shape, device=DEVICE).to(DTYPE)

    if case.kind == "attention":
        heads, queries, keys, head_dim = case.sizes
        kv_heads, fresh = case.kv_heads or heads, keys - case.prefix

        def tokens(count: int, of_heads: int) -> Any:  # next to each other in memory, as in a model
            return random(1, count, of_heads, head_dim).transpose(1, 2)

        mask = (torch.arange(keys, device=DEVICE) < keys - 5)[None, None, None] if case.mask == "padding" else None
        q, k, v = tokens(queries, heads), tokens(fresh, kv_heads), tokens(fresh, kv_heads)
        if case.prefix:
            return lambda: (q, *(random(1, kv_heads, case.prefix, head_dim) for _ in range(2)), mask, k, v)
        return lambda: (q, k, v, mask, None, None)
    rows, inner, columns = case.sizes
    wide = columns * (2 if case.gated else 1)
    x, residual, bias = random(rows, inner), random(rows, columns), random(wide) if case.bias else None

    def weight() -> Any:
        made = random(inner, wide).t() if case.row_major else random(wide, inner)
        return made * inner**-0.5

    if case.kind == "linear_act":
        return lambda: (x, weight(), bias)
    return lambda: (x, weight(), residual)


def run(case: Case, inputs: Inputs, tile: Tile | None, wrap: Callable[[Any], Any] = launch.launch_directly) -> Any:
    """Run our kernel, and what must follow it."""
    if case.kind == "attention":
        q, k, v, mask, more_k, more_v = inputs
        more = (more_k, more_v) if more_k is not None else None
        causal = case.mask == "causal"
        return launch.launch_attention(q, k, v, None, causal=causal, mask=mask, more=more, tile=tile, wrap=wrap)
    x, weight, third = inputs
    if case.kind == "linear_act":
        return launch.launch_linear_act(x, weight, third, case.activation, wrap, tile=tile)
    splits = tile.splits if tile else tiles.product_tiles(*case.sizes, gpu(x.device))[0].splits
    return add_and_norm(launch.launch_split_matmul(x, weight.t(), splits, wrap, tile=tile), third)


def run_torch(case: Case, inputs: Inputs) -> Any:
    """What torch has for it: its attention; its product, and the activation as one kernel, which Inductor would make."""
    if case.kind == "attention":
        q, k, v, mask, more_k, more_v = inputs
        if more_k is not None:
            k, v = torch.cat([k, more_k], 2), torch.cat([v, more_v], 2)
        return torch.nn.functional.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=case.mask == "causal", enable_gqa=k.shape[1] != q.shape[1]
        )
    x, weight, third = inputs
    if case.kind == "split_matmul":
        return add_and_norm(torch.nn.functional.linear(x, weight)[None], third)
    result = torch.nn.functional.linear(x, weight, third)
    if case.gated:
        gate, up = result.chunk(2, -1)
        return launch.launch_gate_mul(gate, up, case.activation.removesuffix("_mul"))  # type: ignore[arg-type]
    return act._ACTIVATIONS[case.activation](result)


def exact(case: Case, inputs: Inputs) -> Any:
    """The result in float64."""
    wide = tuple(t.double() if t is not None and t.is_floating_point() else t for t in inputs)
    if case.kind != "attention":
        return run_in_float64(case, wide)
    q, k, v, mask, more_k, more_v = wide
    return references.attention(q, k, v, None, case.mask == "causal", mask, more_k, more_v)


def run_in_float64(case: Case, inputs: Inputs) -> Any:
    """A product, and what follows it, in float64."""
    x, weight, third = inputs
    if case.kind == "split_matmul":
        total = torch.nn.functional.linear(x, weight) + third
        return torch.nn.functional.layer_norm(total, total.shape[-1:])
    result = torch.nn.functional.linear(x, weight, third)
    function = act._ACTIVATIONS[case.activation.removesuffix("_mul")]
    gate, up = result.chunk(2, -1) if case.gated else (result, 1.0)
    return function(gate) * up


def copies(case: Case, inputs: Inputs) -> int:
    """How many different inputs are needed so that those of a call are not in the cache."""
    if case.kind == "attention" and not case.prefix:
        return _HOT_COPIES
    cold = inputs[1:3] if case.prefix else inputs[1:2]
    size: int = sum(t.numel() * t.element_size() for t in cold)
    return min(_MOST_COPIES, -(-_COLD_BYTES // size))


def timed_us(call: Callable[[Inputs], Any], inputs: Sequence[Inputs]) -> float:
    """Microseconds of a call in a CUDA graph that contains one for each of the inputs."""
    call(inputs[0])
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = [call(given) for given in inputs[:1]]  # of the others, the memory is used again, as in a model
        for given in inputs[1:]:
            call(given)
    graph.replay()
    best = float("inf")
    for _ in range(_ROUNDS):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(_REPLAYS):
            graph.replay()
        end.record()
        torch.cuda.synchronize()
        best = min(best, float(start.elapsed_time(end)) * 1e3 / (_REPLAYS * len(inputs)))
    del kept
    return best


def candidates(case: Case, chip: Gpu) -> list[Tile]:
    """The tiles that a sweep tries, the best by estimate first."""
    if case.kind == "attention":
        heads, queries, keys, head_dim = case.sizes
        estimated = tiles.attention_tiles(heads, queries, keys, head_dim, chip)[:20]
        return _varied(estimated, warps=(4, 8), stages=(2, 3))
    splits = 1 if case.kind == "linear_act" else 0
    estimated = tiles.product_tiles(*case.sizes, chip, splits, gated=case.gated)[: 10 if splits else 14]
    return _varied(estimated, warps=(4, 8), stages=(3,))


def _varied(estimated: Sequence[Tile], *, warps: tuple[int, ...], stages: tuple[int, ...]) -> list[Tile]:
    """Each tile, then each with other numbers of warps and stages."""
    others = [
        tile._replace(warps=w, stages=s)
        for tile in estimated
        for w, s in itertools.product(warps, {tile.stages, *stages})
    ]
    return list(dict.fromkeys([*estimated, *others]))


class Warm:
    """A kernel that is compiled instead of launched."""

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        return lambda *args, **options: self._kernel.warmup(*args, grid=grid, **options)


@cache
def _one_input(case: Case) -> Inputs:
    return make_inputs(case)()


def compile_tile(case: Case, tile: Tile, pdl: bool) -> bool:  # noqa: FBT001
    """Compile a kernel, in a process of its own; False if the tile is too large."""
    inputs = _one_input(case)
    try:
        with nullcontext() if pdl else without_pdl():
            if case.kind == "split_matmul":
                launch.launch_split_matmul(inputs[0], inputs[1].t(), tile.splits, Warm, tile=tile)
            else:
                run(case, inputs, tile, Warm)
    except triton.TritonError:
        return False
    return True


@contextmanager
def compilers(count: int) -> Iterator[ProcessPoolExecutor]:
    """Start processes that compile. They are forks, so this process must not have used the GPU before."""
    pool = ProcessPoolExecutor(count, multiprocessing.get_context("fork"))
    pool.submit(os.getpid).result()
    try:
        yield pool
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def compile_all(pool: Executor, wanted: Iterable[tuple[Case, Tile, bool]], deadline: float) -> set[tuple[object, ...]]:
    """Compile the kernels, with or without PDL, until the deadline; return those that are compiled, as `code` names them."""
    jobs: dict[tuple[object, ...], tuple[Case, Tile, bool]] = {}
    for job in wanted:
        jobs.setdefault(code(*job), job)
    waiting = {pool.submit(compile_tile, *job): name for name, job in jobs.items()}
    done: set[tuple[object, ...]] = set()
    while waiting and time.monotonic() < deadline:
        finished, _ = wait(waiting, timeout=max(0.0, deadline - time.monotonic()), return_when=FIRST_COMPLETED)
        for future in finished:
            name = waiting.pop(future)
            if future.exception() is None and future.result():  # a compiler that crashes ends only this measurement
                done.add(name)
    for future in waiting:
        future.cancel()
    return done


def code(case: Case, tile: Tile, pdl: bool = True) -> tuple[object, ...]:  # noqa: FBT001, FBT002
    """What decides which machine code is used; not how many splits there are, only whether there are several."""
    split = tile.splits > 1 if case.kind == "attention" else 0
    return (*case.variant, pdl, split, *tile._replace(splits=0))


def sweep(budget_s: float, processes: int, file: Path) -> Iterator[str]:
    """Measure the candidates of all shapes, and write the fastest of each into the table."""
    began = time.monotonic()
    with compilers(processes) as pool:
        chip = gpu(torch.device(DEVICE))
        tried = {case: candidates(case, chip) for case in CASES}
        # The best by estimate of every shape first.
        rounds = itertools.zip_longest(*tried.values())
        wanted = [(case, tile, True) for row in rounds for case, tile in zip(tried, row, strict=True) if tile]
        compiled = compile_all(pool, wanted, began + _COMPILING * budget_s)
    yield f"compiled {len(compiled)} of {len({code(*job) for job in wanted})} in {time.monotonic() - began:.0f} s"
    found: dict[str, Tile] = {}
    for case, tile_list in tried.items():
        if time.monotonic() > began + budget_s:
            yield "the budget is used up"
            break
        make = make_inputs(case)
        first = make()
        inputs = [first, *(make() for _ in range(copies(case, first) - 1))]
        rival = timed_us(partial(run_torch, case), inputs)
        times = {
            tile: timed_us(partial(run, case, tile=tile), inputs) for tile in tile_list if code(case, tile) in compiled
        }
        if not times:
            continue
        best = min(times, key=lambda tile: times[tile])
        ours = case.kind == "attention" or times[best] <= _WORTH_IT * rival
        found[case.key] = best if ours else best._replace(splits=0)  # 0: torch's kernels are used
        estimate = times.get(tile_list[0])
        by_estimate = f"{estimate:.2f}" if estimate else "not measured"
        yield f"{case!s:45s} torch {rival:6.2f} estimate {by_estimate} best {times[best]:6.2f} {tuple(best)} of {len(times)}"
    write_table(file, chip.name, found)
    yield f"{len(found)} shapes written to {file}, {time.monotonic() - began:.0f} s"


def write_table(file: Path, chip: str, found: dict[str, Tile]) -> None:
    """Add the tiles of a chip to the table, with the evidence."""
    table = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {"tiles": {}}
    table.setdefault("measured", {})[chip] = {
        "what": "the fastest tile of a shape, in a CUDA graph, bf16, weights not in the cache; 0 splits: torch is faster",
        "command": " ".join(["python", *sys.argv]),
        "date": dt.datetime.now(tz=dt.timezone.utc).date().isoformat(),
        "torch": torch.__version__,
        "triton": triton.__version__,
    }
    table["tiles"].setdefault(chip, {}).update({key: list(tile) for key, tile in found.items()})
    text = re.sub(
        r"\[([\s\d,]+)\]", lambda m: f"[{' '.join(m[1].split())}]", json.dumps(table, indent=1, ensure_ascii=False)
    )
    file.write_text(text + "\n", encoding="utf-8")


def quick(processes: int) -> Iterator[str]:
    """Compare our kernels as they are shipped with torch's: microseconds, errors, and what PDL gains."""
    with compilers(processes) as pool:
        chip = gpu(torch.device(DEVICE))
        wanted = [(case, shipped_tile(case, chip)) for case in CASES]
        jobs = [(case, tile, pdl) for case, tile in wanted for pdl in (True, False)]
        compiled = compile_all(pool, jobs, time.monotonic() + 60)
    yield f"{'case':42s} {'floor':>6s} {'torch':>6s} {'ours':>6s} {'no PDL':>6s}  error, torch's   tile"
    for case, tile in wanted:
        if code(case, tile) not in compiled:
            yield f"{case!s:42s} tile {tuple(tile)} does not compile"
            continue
        make = make_inputs(case)
        first = make()
        inputs = [first, *(make() for _ in range(copies(case, first) - 1))]
        expected = exact(case, first)
        errors = [relative(result, expected) for result in (run(case, first, tile), run_torch(case, first))]
        times = [
            timed_us(partial(run_torch, case), inputs),
            timed_us(partial(run, case, tile=tile), inputs),
        ]
        with without_pdl():
            times.append(timed_us(partial(run, case, tile=tile), inputs))
        floor = sum(t.numel() * t.element_size() for t in first[1:3] if t is not None) / _BANDWIDTH * 1e6
        row = " ".join(f"{value:6.2f}" for value in (floor, *times))
        yield f"{case!s:42s} {row}  {errors[0]:.1e} {errors[1]:.1e}  {tuple(tile)}"


def shipped_tile(case: Case, chip: Gpu) -> Tile:
    """The tile that the kernel uses for a shape."""
    known = tiles.known_tile(chip.name, case.key)
    if known is None:
        return candidates(case, chip)[0]
    return known if known.splits else known._replace(splits=1)


@contextmanager
def without_pdl() -> Iterator[None]:
    """Launch the kernels as on a GPU without programmatic dependent launch."""
    original = gpu
    vars(launch)["gpu"] = lambda device: original(device)._replace(has_pdl=False)
    try:
        yield
    finally:
        vars(launch)["gpu"] = original


def relative(result: Any, expected: Any) -> float:
    """The relative error of a result."""
    return float((result.double() - expected).norm() / expected.norm())
