"""The computations of `rocsolid probe --active`. This module runs as a program in a child process, which may hang or crash.

Each computation prints its result as one line of JSON. If the process ends before that, the parent reports how it ended.
"""

import json
import math
import os
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from rocsolid.process.parent_death import die_with_parent

if TYPE_CHECKING:
    import torch

_DTYPES: Final = ("float64", "float32", "float16", "bfloat16")
_REPLAYS: Final = 200
GROUPS: Final = {
    "gemm": tuple(f"gemm {dtype}" for dtype in _DTYPES),
    "compile": ("compile",),
    "capture": ("capture",),
    "fp8": ("fp8 attention",),
}
Result = tuple[str, str, Mapping[str, object]]  # status, detail, measurements


def gemm(dtype: str) -> Result:
    """Compare a matrix product with the same product in float64 on the CPU."""
    import torch

    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(256, 256, generator=generator, dtype=torch.float64) for _ in range(2))
    device = _device()
    a, b = (matrix.to(getattr(torch, dtype)).to(device) for matrix in (left, right))
    got = (a @ b).cpu().double()
    want = a.cpu().double() @ b.cpu().double()
    return _compare(got, want, f"gemm {dtype}", f"on {device}")


def compiled() -> Result:
    """Compare a small network, compiled in the default mode, with eager."""
    import torch

    torch.manual_seed(0)
    device = _device()
    model = torch.nn.Sequential(
        torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.LayerNorm(64), torch.nn.Linear(64, 8)
    ).to(device)
    x = torch.randn(16, 64, device=device)
    with torch.no_grad():
        got, eager = torch.compile(model)(x), model(x)
        status, detail, measurements = _compare(got, eager, "compile", f"on {device}")
        if status == "ok":
            return status, detail, measurements
        # Eager may be the inaccurate one, for example with TF32: compare both with float64.
        from rocsolid.numerics import as_accurate, max_error
        from rocsolid.reference import NoReference, run_in_higher_precision

        ran = run_in_higher_precision(model, (x,), {})
        if isinstance(ran, NoReference):
            return status, detail, measurements
        exact = ran.leaves[0].value
        errors = {"reference_error": max_error(got, exact), "eager_reference_error": max_error(eager, exact)}
        both = "against float64: {reference_error:.2g}, eager {eager_reference_error:.2g}".format(**errors)
        passes = as_accurate(got, eager, exact)
        return "ok" if passes else status, f"{detail}; {both}", {**measurements, **errors}


def capture() -> Result:
    """Capture one graph, replay it with 200 new inputs, and compare each result with eager."""
    import torch

    if not torch.cuda.is_available():
        return "skipped", "no GPU", {}
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(128, 128) for _ in range(8)), torch.nn.Softmax(-1)).cuda()
    x = torch.randn(32, 128, device="cuda")
    side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.no_grad():
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                model(x)
        torch.cuda.current_stream().wait_stream(side)
        with torch.cuda.graph(graph, stream=side):
            output = model(x)
        for replay_index in range(_REPLAYS):
            x.copy_(torch.randn_like(x))
            graph.replay()
            got = output.clone()
            status, detail, measurements = _compare(got, model(x), "capture", f"replay {replay_index}")
            if status != "ok":
                return status, detail, measurements
    return "ok", f"{_REPLAYS} replays equal eager", {"replays": _REPLAYS}


def fp8_attention() -> Result:
    """Compare AITER's attention in the FP8 dtype of this GPU with attention in float32."""
    import importlib.util

    import torch

    if importlib.util.find_spec("aiter") is None:
        return "skipped", "AITER is not installed", {}
    import aiter  # noqa: A004 - the package is called like the builtin

    device = _device()
    chip = torch.cuda.get_device_properties(0).gcnArchName if torch.version.hip else ""
    dtype = torch.float8_e4m3fnuz if chip.startswith("gfx94") else torch.float8_e4m3fn
    torch.manual_seed(0)
    inputs = [torch.randn(1, 16, 1, 64, device=device).clamp(-2, 2).to(dtype) for _ in range(3)]
    got = aiter.flash_attn_func(*inputs)
    got = got[0] if isinstance(got, tuple) else got
    query, key, value = (tensor.float().transpose(1, 2) for tensor in inputs)
    want = torch.nn.functional.scaled_dot_product_attention(query, key, value).transpose(1, 2)
    return _compare(got.float(), want, "fp8 attention", f"{dtype} on {device}")


def _device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def _compare(got: "torch.Tensor", want: "torch.Tensor", check: str, where: str) -> Result:
    from rocsolid.numerics import ACTIVE_CHECK_LIMITS, max_error

    error, limit = max_error(got, want), ACTIVE_CHECK_LIMITS[check]
    if math.isinf(error):
        return "wrong", f"{where}: the result contains NaN or Inf", {"tolerance": limit}
    measurements = {"relative_error": error, "tolerance": limit}
    if error > limit:
        detail = f"{where}: relative error {error:.2g} (largest error / largest value), allowed: {limit:g}"
        return "wrong", detail, measurements
    return "ok", where, measurements


_CHECKS: Final[Mapping[str, Callable[[], Result]]] = {
    **{f"gemm {dtype}": partial(gemm, dtype) for dtype in _DTYPES},
    "compile": compiled,
    "capture": capture,
    "fp8 attention": fp8_attention,
}


def main(names: list[str]) -> None:
    """Run the named computations and print one line of JSON for each."""
    for name in names:
        started = time.monotonic()
        try:
            status, detail, measurements = _CHECKS[name]()
        except Exception as error:  # noqa: BLE001 - any error of a torch build is the result of the check
            status, detail, measurements = "failed", f"{type(error).__name__}: {str(error).splitlines()[0][:300]}", {}
        line: dict[str, Any] = {
            "rocsolid": name,
            "status": status,
            "detail": detail,
            "seconds": round(time.monotonic() - started, 3),
            "measurements": dict(measurements),
        }
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    die_with_parent(os.getppid())
    main(sys.argv[1:])
