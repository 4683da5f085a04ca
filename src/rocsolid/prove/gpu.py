"""Checks that compute on the GPU: captures, random numbers, shipped and vendor operators, kernels against the dry run, chips."""

import ctypes
import importlib
import importlib.util
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rocsolid.catalog.capture_errors import meaning_of
from rocsolid.catalog.chips import CHIPS
from rocsolid.catalog.registry import setting
from rocsolid.model.chip import Chip
from rocsolid.model.platform import Platform
from rocsolid.model.proof import Claim, ClaimKind, ClaimResult, ClaimVerdict, Prediction
from rocsolid.process.run_command import Command, run_with_deadline
from rocsolid.prove.check import CannotDecide, NotApplicable, Seen, Task, check, plain, result
from rocsolid.prove.runtime import loaded_library

if TYPE_CHECKING:
    import torch

_REGISTER_ERROR: Final = 0.25  # the dry run does not know which sizes are multiples of 16
_GIB: Final = 1 << 30
_SAME_FOR_ALL: Final = ("wavefront_size", "lds_bytes")  # of all products with one chip


@check(
    "capture",
    "rs.capture returns what eager returns, for new values, a new shape, a second module and random numbers",
    rank=5,
    estimate_s=15,
    gpu=True,
)
def capture(_: Task) -> Seen:
    """Capture two modules and a function that draws random numbers, and compare every call with eager."""
    import torch

    import rocsolid as rs
    from rocsolid.numerics import max_error

    def noisy(x: "torch.Tensor") -> "torch.Tensor":
        return x + torch.rand_like(x)

    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    layers = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.LayerNorm(64)).to(device)
    other = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU()).to(device)
    errors, replays = [], []
    with torch.no_grad():
        for eager in (layers, other, noisy):
            fast = rs.capture(eager)
            for seed, rows in enumerate((8, 8, 8, 16, 16, 8, 16)):
                x = torch.randn(rows, 64, device=device)
                torch.manual_seed(seed)
                want = eager(x)
                torch.manual_seed(seed)
                errors.append(max_error(fast(x), want))
            replays.append(fast.report().replays)
    return judge_capture(errors, replays)


def judge_capture(errors: list[float], replays: list[int]) -> Seen:
    """All results must be as close to eager as replays are, and each function must have been replayed."""
    from rocsolid.numerics import ACTIVE_CHECK_LIMITS

    worst = max(errors)
    return Seen(
        holds=worst < ACTIVE_CHECK_LIMITS["capture"] and all(replays),
        detail=f"{len(errors)} calls, replays of each function: {replays}, largest difference {worst:.2g}",
        values={"difference": plain(worst)},
    )


@check("rng", "replays draw new random numbers, and the same ones after the same seed", rank=6, estimate_s=10, gpu=True)
def rng(_: Task) -> Seen:
    """Capture a function that draws random numbers."""
    import torch

    x = torch.zeros(256, device="cuda")
    torch.rand_like(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = torch.rand_like(x)
    drawn = []
    for seed in (1, None, 1):
        if seed is not None:
            torch.cuda.manual_seed(seed)
        graph.replay()
        drawn.append(y.cpu().tolist())
    return judge_rng(drawn)


def judge_rng(drawn: list[list[float]]) -> Seen:
    """The first and third were drawn after the same seed."""
    first, second, third = drawn
    return Seen(
        holds=first != second and first == third,
        detail=f"second replay {'new' if first != second else 'the same'}, same seed {'the same' if first == third else 'new'}",
    )


@check(
    "replay",
    "a replay repeats the captured branch and writes to the same output; its memory is reserved while the graph exists",
    rank=7,
    estimate_s=10,
    gpu=True,
)
def replay(task: Task) -> Seen:
    """Replay a graph after a Python value, nothing, and its input changed."""
    import torch

    from rocsolid.prove.problems import captured

    x, plus = torch.zeros(1 << 20, device="cuda"), [True]
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    graph, y = captured(lambda: x * 2 + 1 if plus else x * 2 - 1)
    plus.clear()
    read = []
    for value in (0.0, 0.0, 3.0):
        x.fill_(value)
        graph.replay()
        read.append(float(y[0]))
    torch.cuda.empty_cache()
    held = torch.cuda.memory_reserved() - before
    del graph, y
    torch.cuda.empty_cache()
    return judge_replay(task.argument, read, held, torch.cuda.memory_reserved() - before)


def judge_replay(about: str, read: list[float], held: int, left: int) -> Seen:
    """Three replays of x * 2 + 1 for x = 0, 0, 3; the function now takes the branch x * 2 - 1."""
    holds = {"branch": read[0] == 1, "output": read == [1, 1, 7], "memory": held > 0 and left < held}[about]
    detail = f"three replays wrote {read}; {held} bytes reserved for the graph, {left} after it was deleted"
    return Seen(holds=holds, detail=detail, values={"read": read, "held_bytes": held, "left_bytes": left})


@check(
    "capture-mistakes",
    "torch's message for the mistake contains the text by which rocsolid recognises it",
    rank=7,
    estimate_s=10,
    gpu=True,
)
def capture_mistakes(task: Task) -> Iterator[ClaimResult]:
    """Make each mistake in a capture, and read the error."""
    import torch

    from rocsolid.prove.problems import error_in_capture

    mistakes: dict[str, Callable[[], object]] = {
        "error:host-copy": lambda: torch.ones(4).cuda(),
        "error:rng-state": torch.cuda.get_rng_state,
    }
    for claim in task.claims:
        yield judge_mistake(claim, error_in_capture(mistakes[claim.id]))


def judge_mistake(claim: Claim, text: str) -> ClaimResult:
    """Whether the message is recognised as this mistake; no message: this torch allows it."""
    if not text:
        return result(claim, ClaimVerdict.NOT_APPLICABLE, "this torch allows it")
    meaning = meaning_of(text)
    cause = meaning.cause.value.replace(" ", "-") if meaning else "nothing"
    return result(claim, claim.id == f"error:{cause}", f"recognised as {cause}: {text.splitlines()[0][:200]}")


@check("optimize", "rs.optimize returns a form whose results equal eager's", rank=35, estimate_s=60, deadline_s=240)
def optimize(_: Task) -> Seen:
    """Optimize a small model, and compare."""
    import torch

    import rocsolid as rs
    from rocsolid.numerics import error_limit, relative_error

    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.ReLU(), torch.nn.Linear(32, 8)).to(device)
    x = torch.randn(4, 32, device=device)
    with torch.no_grad():
        fast = rs.optimize(model, (x,), budget_s=0 if device == "cpu" else 60)
        want = model(x + 1)
        error = relative_error(fast(x + 1), want)
    chosen = str(fast.report()).partition("\n")[0]
    return Seen(
        holds=error < error_limit(want), detail=f"{chosen}; difference {error:.2g}", values={"difference": plain(error)}
    )


@check(
    "kernels",
    "the operator is as accurate as its reference, compared with float64",
    rank=8,
    estimate_s=30,
    deadline_s=240,
)
def kernels(task: Task) -> Iterator[ClaimResult]:
    """Run every shipped operator and its reference, and compare both with float64."""
    import torch

    from rocsolid.ops import shipped
    from rocsolid.ops.shipped import references

    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = torch.float16 if device == "cuda" else torch.float32
    inputs = operator_inputs(device, dtype)
    for claim in task.claims:
        name = claim.id.removeprefix("kernel:")
        exact = _first(exact_functions()[name](*(x.double() for x in inputs[name])))
        got, reference = (_first(getattr(module, name)(*inputs[name])) for module in (shipped, references))
        yield judge_kernel(claim, got, reference, exact, device)


def operator_inputs(device: str, dtype: "torch.dtype") -> Mapping[str, tuple[Any, ...]]:
    """Random inputs of every operator."""
    import torch

    torch.manual_seed(0)

    def made(*shape: int) -> "torch.Tensor":
        return torch.randn(*shape, device=device).to(dtype)

    return {
        "rms_norm": (made(33, 512), made(512)),
        "add_rms_norm": (made(33, 512), made(33, 512), made(512)),
        "silu_mul": (made(33, 640), made(33, 640)),
        "gelu_mul": (made(33, 640), made(33, 640)),
        "attention": (made(2, 4, 65, 64), made(2, 2, 65, 64), made(2, 2, 65, 64)),
        "linear": (made(33, 256), made(128, 256), made(128)),
    }


def exact_functions() -> Mapping[str, Callable[..., Any]]:
    """The operators in float64, written without rounding in between."""
    import torch
    from torch.nn import functional

    def rms_norm(x: Any, weight: Any) -> Any:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * weight

    def attention(q: Any, k: Any, v: Any) -> Any:
        repeats = q.shape[1] // k.shape[1]
        return functional.scaled_dot_product_attention(q, *(t.repeat_interleave(repeats, 1) for t in (k, v)))

    return {
        "rms_norm": rms_norm,
        "add_rms_norm": lambda x, residual, weight: rms_norm(x + residual, weight),
        "silu_mul": lambda gate, up: functional.silu(gate) * up,
        "gelu_mul": lambda gate, up: functional.gelu(gate) * up,
        "attention": attention,
        "linear": functional.linear,
    }


def judge_kernel(claim: Claim, got: Any, reference: Any, exact: Any, device: str) -> ClaimResult:
    """Compare the errors of the operator and of its reference."""
    from rocsolid.numerics import as_accurate, max_error

    error, allowed = max_error(got, exact), max_error(reference, exact)
    holds = as_accurate(got, reference, exact)
    detail = f"on {device}: error {error:.2g}, the reference's {allowed:.2g}"
    return result(claim, holds, detail, error=plain(error), reference_error=plain(allowed))


def _first(values: Any) -> Any:
    return values[0] if isinstance(values, tuple) else values


@check(
    "dryrun",
    "spills, LDS and occupancy of every shipped kernel are as predicted, registers within 25 %",
    rank=9,
    estimate_s=60,
    deadline_s=300,
    gpu=True,
)
def dryrun(task: Task) -> Iterator[ClaimResult]:
    """Launch every shipped kernel here, and compare its resources with those that a dry run predicts."""
    import triton

    from rocsolid.api.dryrun import dryrun_kernels
    from rocsolid.dryrun.kernel_signature import parse_signature
    from rocsolid.ops.shipped import kernels as shipped_kernels

    chip = this_chip()
    if chip is None:
        msg = "the dry run does not know this chip"
        raise NotApplicable(msg)
    launches = launch_shipped_kernels("cuda")
    record = dryrun_kernels(
        shipped_kernels.__file__,
        chip.arch,
        signatures=[parse_signature(launch.signature) for launch in launches],
        only=[launch.name for launch in launches],
    )
    run = record.runs[0]
    predicted: dict[str, int] = {}
    real: dict[str, int] = {}
    for launch in launches:
        resources = run.kernel(launch.name).configs[0].resources
        if resources is None:
            msg = f"the dry run could not compile {launch.name}"
            raise CannotDecide(msg)
        predicted |= {
            f"{launch.name} registers": resources.registers,
            f"{launch.name} spills": resources.spills,
            f"{launch.name} LDS bytes": resources.lds_bytes,
            f"{launch.name} waves per SIMD": resources.occupancy,
        }
        real |= {
            f"{launch.name} registers": int(launch.made.n_regs or 0),
            f"{launch.name} spills": int(launch.made.n_spills or 0),
            f"{launch.name} LDS bytes": int(launch.made.metadata.shared),
            f"{launch.name} waves per SIMD": _waves_per_simd(launch.made, chip),
        }
    yield from (judge_resources(claim, predicted, real, triton.__version__) for claim in task.claims)


@dataclass(frozen=True)
class KernelLaunch:
    """A launch of a Triton kernel: its arguments as a signature, and what Triton compiled for it."""

    name: str
    signature: str
    made: Any


class _Recorded:
    """A kernel whose launches are added to a list."""

    def __init__(self, kernel: Any, launches: list[KernelLaunch]) -> None:
        self._kernel, self._launches = kernel, launches

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        def launch(*args: Any, **kwargs: Any) -> None:
            made = self._kernel[grid](*args, **kwargs)
            given = {**dict(zip(self._kernel.arg_names, args, strict=False)), **kwargs}
            given.pop("launch_pdl", None)  # needs no resources
            constants = {p.name for p in self._kernel.params if p.is_constexpr}
            texts = [
                f"{name}={repr(value) if name in constants or name not in self._kernel.arg_names else _type_name(value)}"
                for name, value in given.items()
            ]
            name = self._kernel.__name__
            self._launches.append(KernelLaunch(name, f"{name}({', '.join(texts)})", made))

        return launch


def launch_shipped_kernels(device: str) -> list[KernelLaunch]:
    """Launch each shipped kernel once. All sizes are multiples of 16, which a dry run assumes."""
    import torch

    from rocsolid.ops.shipped import launch

    launches: list[KernelLaunch] = []

    def recorded(kernel: Any) -> _Recorded:
        return _Recorded(kernel, launches)

    x, y, weight = (torch.randn(size, device=device).half() for size in ((16, 1024), (16, 1024), (1024,)))
    q, k, v = (
        torch.randn(16, heads, size, 64, device=device).half() for heads, size in ((16, 16), (1, 1024), (1, 1024))
    )
    launch.launch_rms_norm(x, weight, 1e-6, recorded)
    launch.launch_add_rms_norm(x, y, weight, 1e-6, recorded)
    launch.launch_gate_mul(x, y, "silu", recorded)
    launch.launch_attention(q, k, v, None, causal=False, splits=16, wrap=recorded)
    square = weight.expand(1024, 1024).contiguous()
    launch.launch_split_matmul(x, square, 2, recorded)
    launch.launch_linear_act(x, square, weight, "gelu", recorded)
    return launches


def _type_name(value: Any) -> str:
    names = {"float16": "fp16", "float32": "fp32"}
    if isinstance(value, (int, float)):
        return "i32" if isinstance(value, int) else "fp32"
    return f"*{names[str(value.dtype).removeprefix('torch.')]}"


def _waves_per_simd(made: Any, chip: Chip) -> int:
    """How many wavefronts of a compiled kernel one SIMD can hold, as the driver computes it."""
    library, function = {
        Platform.ROCM: (loaded_library(), "hipModuleOccupancyMaxActiveBlocksPerMultiprocessor"),
        Platform.CUDA: ("libcuda.so.1", "cuOccupancyMaxActiveBlocksPerMultiprocessor"),
    }[chip.platform]
    groups, warps = ctypes.c_int(), int(made.metadata.num_warps)
    code = getattr(ctypes.CDLL(library), function)(
        ctypes.byref(groups),
        ctypes.c_void_p(made.function),
        ctypes.c_int(warps * chip.wavefront_size),
        ctypes.c_size_t(made.metadata.shared),
    )
    if code:
        msg = f"{function} failed with error {code}"
        raise CannotDecide(msg)
    return max(1, groups.value * warps // chip.simds)


def judge_resources(
    claim: Claim, predicted: Mapping[str, int], real: Mapping[str, int], triton_version: str
) -> ClaimResult:
    """Compare resources of kernels; all but registers must be exact."""
    predictions = tuple(
        Prediction(
            what=name,
            predicted=value,
            seen=real[name],
            allowed=_REGISTER_ERROR if name.endswith(" registers") else 0.0,
        )
        for name, value in predicted.items()
    )
    off = [prediction for prediction in predictions if not prediction.holds]
    detail = "; ".join(map(str, off or predictions))
    return result(claim, not off, f"Triton {triton_version}: {detail}", predictions, **real)


@check("chips", "the runtime reports these figures for the chip", rank=4, estimate_s=5)
def chips(task: Task) -> Iterator[ClaimResult]:
    """Compare the table of chips with the properties of the GPU that is here."""
    import torch

    if not torch.cuda.is_available():
        msg = "no GPU"
        raise CannotDecide(msg)
    properties = torch.cuda.get_device_properties(0)
    seen = {
        "wavefront_size": int(getattr(properties, "warp_size", 0)),
        "compute_units": int(properties.multi_processor_count),
        "lds_bytes": int(getattr(properties, "shared_memory_per_block_optin", 0) or properties.shared_memory_per_block),
        "memory_gib": round(properties.total_memory / _GIB),
    }
    here = this_chip()
    for claim in task.claims:
        yield judge_chip(claim, here, seen, properties.name)


def judge_chip(claim: Claim, here: Chip | None, seen: Mapping[str, int], product: str) -> ClaimResult:
    """Compare the figures of this chip; memory may be smaller by 3 %, because the driver keeps some.

    Other products with the same chip have other numbers of units, and a partition has fewer. A claim that is about no single chip is
    about wavefronts.
    """
    if claim.kind is not ClaimKind.CHIP and here is not None and here.platform is Platform.ROCM:
        width, stated = seen["wavefront_size"], 64 if here.arch.startswith("gfx9") else 32
        return result(claim, width == stated, f"wavefronts of {width} on {here.arch}, stated {stated}", (), **seen)
    if here is None or claim.id != f"chip:{here.arch}":
        return result(
            claim, ClaimVerdict.NOT_APPLICABLE, f"this machine has {here.arch if here else 'another chip'}", (), **seen
        )
    wrong = [name for name in _SAME_FOR_ALL if seen[name] != getattr(here, name)]
    model = here.product.removeprefix("AMD ").partition(" ")[2].removeprefix("RX ")
    if not wrong and f" {model} " not in f" {product} ":
        return result(claim, ClaimVerdict.NOT_APPLICABLE, f"this GPU is named {product}, not {model}", (), **seen)
    if not wrong and seen["compute_units"] < here.compute_units and here.compute_units % seen["compute_units"] == 0:
        detail = f"{seen['compute_units']} of {here.compute_units} units: this is a partition of the GPU"
        return result(claim, ClaimVerdict.NOT_APPLICABLE, detail, (), **seen)
    wrong += ["compute_units"] if seen["compute_units"] != here.compute_units else []
    wrong += ["memory_gib"] if abs(seen["memory_gib"] - here.memory_gib) > 0.03 * here.memory_gib else []
    detail = "; ".join(f"{name}: {seen[name]}, stated {getattr(here, name)}" for name in wrong) or "as stated"
    return result(claim, not wrong, detail, (), **seen)


def this_chip() -> Chip | None:
    """The entry of the first GPU in the table of chips."""
    import torch

    properties = torch.cuda.get_device_properties(0)
    arch = str(getattr(properties, "gcnArchName", "")).partition(":")[0] if torch.version.hip else ""
    arch = arch or f"sm_{properties.major}{properties.minor}"
    return next((chip for chip in CHIPS if chip.arch == arch), None)


@check("vendor", "the vendor's kernels return what float64 returns", rank=50, estimate_s=60, deadline_s=300, gpu=True)
def vendor(task: Task) -> Seen:
    """Compare an operator of the package with float64; without the package there is nothing to compare."""
    if importlib.util.find_spec(task.argument) is None:
        msg = f"{task.argument} is not installed"
        raise NotApplicable(msg)
    import torch

    if task.argument == "aiter":
        return _aiter()
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 65, 4, 64, device="cuda").half() for _ in range(3))
    if task.argument == "ck4inductor":
        options = {"max_autotune_gemm": True, "max_autotune_gemm_backends": "CK,ATEN"}
        got = torch.compile(torch.mm, options=options)(q[0, :, 0], k[0, :, 0].T.contiguous())
        return judge_vendor(got, q[0, :, 0].double() @ k[0, :, 0].T.double())
    got = importlib.import_module(task.argument).flash_attn_func(q, k, v)
    exact = torch.nn.functional.scaled_dot_product_attention(*(t.double().transpose(1, 2) for t in (q, k, v)))
    return judge_vendor(got, exact.transpose(1, 2))


def _aiter() -> Seen:
    """Every operator that uses AITER."""
    import torch

    from rocsolid.ops.shipped.aiter_kernels import OPERATORS

    inputs = operator_inputs("cuda", torch.float16)
    options = {"rms_norm": (1e-6,), "add_rms_norm": (1e-6,), "attention": (None, False)}
    seen = {
        name: judge_vendor(
            _first(operator(*inputs[name], *options.get(name, ()))),
            exact_functions()[name](*(x.double() for x in inputs[name])),
        )
        for name, operator in OPERATORS.items()
    }
    detail = "; ".join(f"{name}: {one.detail}" for name, one in seen.items())
    return Seen(holds=all(one.holds for one in seen.values()), detail=detail)


def judge_vendor(got: Any, exact: Any) -> Seen:
    """Half precision is right to about three digits."""
    from rocsolid.numerics import error_limit, max_error

    error = max_error(got, exact)
    return Seen(holds=error < error_limit(got), detail=f"error {error:.2g}", values={"error": plain(error)})


_TUNED: Final = """
import sys, torch
x = torch.randn(128, 128, device="cuda", dtype=torch.float16)
with torch.no_grad():
    torch.compile(lambda x: torch.softmax(torch.relu(x @ x) * 2, -1).sum(0), **eval(sys.argv[1]))(x)
"""


@check(
    "autotune-runs",
    "with the value, a compile benchmarks several variants of a kernel",
    rank=36,
    estimate_s=60,
    deadline_s=300,
    gpu=True,
)
def autotune_runs(task: Task) -> Iterator[ClaimResult]:
    """Compile with the value in a fresh process with empty caches, and read the compiler's log."""
    for claim in task.claims:
        declared = setting(claim.refs[0])
        arguments = {"mode": claim.refs[1]} if declared.id == "compile.mode" else {"options": {declared.name: True}}
        with tempfile.TemporaryDirectory() as folder:
            caches = {
                "TORCHINDUCTOR_CACHE_DIR": folder,
                "TRITON_CACHE_DIR": f"{folder}/triton",
                "TORCH_LOGS": "+inductor",
            }
            done = run_with_deadline(
                Command(
                    name=claim.id,
                    command=[sys.executable, "-c", _TUNED, repr(arguments)],
                    deadline_s=90.0,
                    env={**os.environ, **caches},
                )
            )
        yield judge_autotune(claim, done.stdout + done.stderr, done.check.status.value)


def judge_autotune(claim: Claim, log: str, ended: str) -> ClaimResult:
    """Count the lines that Inductor logs for each search."""
    searches = log.count("AUTOTUNE ") + log.count("Benchmark all input configs")
    if not searches and ended != "ok":
        return result(claim, ClaimVerdict.COULD_NOT_RUN, f"the compile {ended}: {log.strip().splitlines()[-1:]}")
    return result(claim, searches > 0, f"{searches} searches", searches=searches)
