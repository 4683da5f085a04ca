"""Measure the effect of single settings on public models, and write an evidence record.

    python scripts/measure_settings.py --out evidence/settings-on-h200.json

Every cell (model, variant) runs in its own process with empty caches and a deadline. A few cells compile at the same
time, but only one is timed at a time, under a lock that waits until no cell compiles. The untouched variant is
measured three times, so the record contains the noise. Before timing, the result is compared with eager. Needs a GPU,
torchvision and transformers; nothing is downloaded, weights are random.
"""

import argparse
import contextlib
import fcntl
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rocsolid.measure.evidence import evidence, write

PLAIN = "untouched"
VARIANTS: dict[str, dict[str, Any]] = {
    PLAIN: {},
    f"{PLAIN} again": {},
    f"{PLAIN} once more": {},
    "freezing": {},
    "coordinate_descent_tuning": {"coordinate_descent_tuning": True},
    "aggressive_fusion": {"aggressive_fusion": True},
    "max_fusion_size 128": {"max_fusion_size": 128},
    "max_autotune_pointwise": {"max_autotune_pointwise": True},
    "triton.multi_kernel": {"triton.multi_kernel": 1},
    "combo_kernels": {"combo_kernels": True},
    "shape_padding off": {"shape_padding": False},
    "epilogue_fusion off": {"epilogue_fusion": False},
    "pattern_matcher off": {"pattern_matcher": False},
    "reorder_for_locality off": {"reorder_for_locality": False},
    "max_autotune": {"max_autotune": True},
}
SLOW = "max_autotune"
MODES = ("reduce-overhead",)  # timed as called, without capturing it
MODELS = ("resnet50", "gpt2", "t5_encoder")
ROUNDS, REPLAYS, WARMUPS = 7, 200, 3


def build(name: str) -> tuple[Any, tuple[Any, ...]]:
    """A public model built from its configuration, in bfloat16 on the GPU, and one input of batch 1."""
    import torch

    torch.manual_seed(0)
    if name == "resnet50":
        import torchvision

        model = torchvision.models.resnet50()
        inputs: tuple[Any, ...] = (torch.randn(1, 3, 224, 224, device="cuda", dtype=torch.bfloat16),)
    else:
        import transformers

        if name == "gpt2":
            config = transformers.GPT2Config(use_cache=False)
            model, length = transformers.GPT2LMHeadModel(config), 64
        else:
            model, length = transformers.T5EncoderModel(transformers.T5Config()), 64
        inputs = (torch.randint(0, 1000, (1, length), device="cuda"),)
    return model.eval().to("cuda", torch.bfloat16), inputs


def first_tensor(output: Any) -> Any:
    """The tensor of a model's output that is compared."""
    import torch

    if isinstance(output, torch.Tensor):
        return output
    return output[0]


def cell(model_name: str, variant: str, lock: str) -> dict[str, Any]:
    """Compile one variant, check its result, and time it alone."""
    import torch

    model, inputs = build(model_name)
    with torch.no_grad():
        wanted = first_tensor(model(*inputs)).float()
        with held(lock, fcntl.LOCK_SH):
            started = time.perf_counter()
            if variant == "freezing":  # has no effect as an option
                torch._inductor.config.freezing = True
            if variant in MODES:
                compiled = torch.compile(model, mode=variant)
            else:
                compiled = torch.compile(model, options=VARIANTS[variant] or None)
            for _ in range(WARMUPS):
                got = first_tensor(compiled(*inputs)).float().clone()
            torch.cuda.synchronize()
            seconds = time.perf_counter() - started
        call: Callable[[], object] = (lambda: compiled(*inputs)) if variant in MODES else captured(compiled, inputs)
        with held(lock, fcntl.LOCK_EX):
            rounds_ms = [timed(call) for _ in range(ROUNDS)]
    error = ((got - wanted).norm() / wanted.norm()).item()
    return {
        "model": model_name,
        "variant": variant,
        "median_ms": round(statistics.median(rounds_ms), 5),
        "rounds_ms": [round(ms, 5) for ms in rounds_ms],
        "setup_s": round(seconds, 2),
        "relative_error": float(f"{error:.3g}"),
    }


def captured(compiled: Any, inputs: tuple[Any, ...]) -> Callable[[], object]:
    """Capture the whole call in one CUDA graph; return its replay."""
    import torch

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARMUPS):
            compiled(*inputs)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        compiled(*inputs)
    replay: Callable[[], object] = graph.replay
    return replay


def timed(call: Callable[[], object]) -> float:
    """Milliseconds per call by CUDA events, over many calls in a row."""
    import torch

    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    call()
    torch.cuda.synchronize()
    start.record()
    for _ in range(REPLAYS):
        call()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) / REPLAYS


@contextlib.contextmanager
def held(lock: str, kind: int) -> Iterator[None]:
    """Hold a file lock: shared while compiling, exclusive while timing."""
    with Path(lock).open("w") as file:
        fcntl.flock(file, kind)
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)


def run_cell(model: str, variant: str, lock: str, deadline_s: float) -> dict[str, Any]:
    """Run one cell in its own process, with its own caches."""
    with tempfile.TemporaryDirectory() as caches:
        env = os.environ | {
            "TORCHINDUCTOR_CACHE_DIR": f"{caches}/inductor",
            "TRITON_CACHE_DIR": f"{caches}/triton",
            "TORCHINDUCTOR_COMPILE_THREADS": "4",
        }
        command = [sys.executable, __file__, "--cell", model, variant, "--lock", lock]
        try:
            done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=deadline_s, check=False)
        except subprocess.TimeoutExpired:
            return {"model": model, "variant": variant, "failed": f"not done after {deadline_s:.0f} s"}
    if done.returncode:
        return {"model": model, "variant": variant, "failed": done.stderr.strip().splitlines()[-1][:200]}
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def record(cells: list[dict[str, Any]]) -> dict[str, Any]:
    """The evidence record of the cells."""
    return evidence(
        what="single settings on top of torch.compile and one whole-call CUDA graph, batch 1, bf16",
        command="python scripts/measure_settings.py",
        cells=cells,
    )


def main() -> None:
    """Run all cells, a few compiles at the same time, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("evidence/settings.json"))
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--deadline-s", type=float, default=240)
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--variants", nargs="+", default=[*VARIANTS, *MODES])
    parser.add_argument("--repeats", type=int, default=1, help="processes per cell")
    parser.add_argument("--cell", nargs=2, metavar=("MODEL", "VARIANT"), help=argparse.SUPPRESS)
    parser.add_argument("--lock", default="", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.cell:
        model, variant = args.cell
        print(json.dumps(cell(model, variant, args.lock)))
        return
    work = [(m, v) for _ in range(args.repeats) for v in args.variants for m in args.models if v != SLOW]
    # A search that does not end would block the timing of all others, so it runs last, one model at a time.
    slow = [(m, SLOW) for m in args.models if SLOW in args.variants]
    cells: list[dict[str, Any]] = []
    with tempfile.NamedTemporaryFile() as lock, ThreadPoolExecutor(args.jobs) as pool:

        def results() -> Iterator[dict[str, Any]]:
            jobs = [pool.submit(run_cell, m, v, lock.name, args.deadline_s) for m, v in work]
            yield from (job.result() for job in jobs)
            yield from (run_cell(m, v, lock.name, args.deadline_s) for m, v in slow)

        for row in results():
            cells.append(row)
            write(record(cells), args.out)
            print(
                f"{row['model']:12} {row['variant']:28}",
                row.get("failed")
                or f"{row['median_ms']:.4f} ms, set-up {row['setup_s']:.1f} s, error {row['relative_error']:.1e}",
                flush=True,
            )


if __name__ == "__main__":
    main()
