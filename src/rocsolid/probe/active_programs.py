"""The small real computations of `probe --active`; run as a program, in a process that may hang or die.

Each prints one line of JSON when it is done. What takes the process down before that is told by the parent.
"""

import json
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
_TOLERANCES: Final = {"float64": 1e-10, "float32": 1e-3, "float16": 2e-2, "bfloat16": 1e-1}
_REPLAYS: Final = 200
GROUPS: Final = {
    "gemm": tuple(f"gemm {dtype}" for dtype in _DTYPES),
    "compile": ("compile",),
    "capture": ("capture",),
    "fp8": ("fp8 attention",),
}
Result = tuple[str, str, Mapping[str, object]]  # ending, detail, facts


def gemm(dtype: str) -> Result:
    """A matrix product against the same product in double precision on the CPU."""
    import torch

    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(256, 256, generator=generator, dtype=torch.float64) for _ in range(2))
    kind = getattr(torch, dtype)
    device = _device()
    given = (left.to(kind).to(device), right.to(kind).to(device))
    got = (given[0] @ given[1]).cpu().double()
    wanted = given[0].cpu().double() @ given[1].cpu().double()
    return _judged(got, wanted, _TOLERANCES[dtype], f"on {device}")


def compiled() -> Result:
    """A small network, compiled in the default mode, against itself uncompiled."""
    import torch

    torch.manual_seed(0)
    device = _device()
    model = torch.nn.Sequential(
        torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.LayerNorm(64), torch.nn.Linear(64, 8)
    ).to(device)
    given = torch.randn(16, 64, device=device)
    with torch.no_grad():
        return _judged(torch.compile(model)(given), model(given), 1e-3, f"on {device}")


def capture() -> Result:
    """One captured graph, replayed two hundred times with new inputs, each answer against eager."""
    import torch

    if not torch.cuda.is_available():
        return "skipped", "no accelerator", {}
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(128, 128) for _ in range(8)), torch.nn.Softmax(-1)).cuda()
    given = torch.randn(32, 128, device="cuda")
    side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.no_grad():
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                model(given)
        torch.cuda.current_stream().wait_stream(side)
        with torch.cuda.graph(graph, stream=side):
            answer = model(given)
        for number in range(_REPLAYS):
            given.copy_(torch.randn_like(given))
            graph.replay()
            got = answer.clone()
            ending, detail, facts = _judged(got, model(given), 1e-4, f"replay {number}")
            if ending != "answered":
                return ending, detail, facts
    return "answered", f"{_REPLAYS} replays equal eager", {"replays": _REPLAYS}


def fp8_attention() -> Result:
    """AITER's attention in the FP8 type of this chip, against attention in single precision."""
    import importlib.util

    import torch

    if importlib.util.find_spec("aiter") is None:
        return "skipped", "AITER is not installed", {}
    import aiter  # noqa: A004 - the package is called like the builtin

    device = _device()
    chip = torch.cuda.get_device_properties(0).gcnArchName if torch.version.hip else ""
    kind = torch.float8_e4m3fnuz if chip.startswith("gfx94") else torch.float8_e4m3fn
    torch.manual_seed(0)
    given = [torch.randn(1, 16, 1, 64, device=device).clamp(-2, 2).to(kind) for _ in range(3)]
    got = aiter.flash_attn_func(*given)
    got = got[0] if isinstance(got, tuple) else got
    query, key, value = (tensor.float().transpose(1, 2) for tensor in given)
    wanted = torch.nn.functional.scaled_dot_product_attention(query, key, value).transpose(1, 2)
    return _judged(got.float(), wanted, 0.2, f"{kind} on {device}")


def _device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def _judged(got: "torch.Tensor", wanted: "torch.Tensor", tolerance: float, where: str) -> Result:
    import torch

    scale = wanted.abs().max().item()
    error = (got.double() - wanted.double()).abs().max().item() / (scale or 1.0)
    facts = {"relative_error": error, "tolerance": tolerance}
    if not torch.isfinite(got).all().item() or error > tolerance:
        return "wrong", f"{where}: off by {error:.2g} of the largest value, allowed is {tolerance:g}", facts
    return "answered", where, facts


_CHECKS: Final[Mapping[str, Callable[[], Result]]] = {
    **{f"gemm {dtype}": partial(gemm, dtype) for dtype in _DTYPES},
    "compile": compiled,
    "capture": capture,
    "fp8 attention": fp8_attention,
}


def main(names: list[str]) -> None:
    """Run the named computations and print a line for each."""
    for name in names:
        started = time.monotonic()
        try:
            ending, detail, facts = _CHECKS[name]()
        except Exception as error:  # noqa: BLE001 - whatever a build of torch raises is the answer
            ending, detail, facts = "failed", f"{type(error).__name__}: {str(error).splitlines()[0][:300]}", {}
        line: dict[str, Any] = {
            "rocsolid": name,
            "ending": ending,
            "detail": detail,
            "seconds": round(time.monotonic() - started, 3),
            "facts": dict(facts),
        }
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    die_with_parent(os.getppid())
    main(sys.argv[1:])
