"""The program that probes the private names of a dry run: it compiles one small function for a GPU that is not present.

It runs in a process of its own, because a simulated GPU cannot be removed from a process. `rocsolid.torchapi.name_probes` starts it.
Where torch calls a function, the proof is that torch called our replacement; otherwise it is what the dry run recorded.
"""

import contextlib
import importlib
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from rocsolid.model.chip import Chip
from rocsolid.model.platform import Platform
from rocsolid.model.release import compare
from rocsolid.torchapi import private_api
from rocsolid.torchapi.inductor import lowering
from rocsolid.torchapi.inductor.lowering import LoweringRecord
from rocsolid.torchapi.pretend import triton_driver
from rocsolid.torchapi.pretend.triton_driver import LaunchRecord
from rocsolid.torchapi.private_api import AttributePatch, PrivateName, all_private_names

_MARK: Final = "rocsolid-dry-run:"
_CHIP: Final = Chip(
    arch="gfx942",
    product="AMD Instinct MI300X",
    platform=Platform.ROCM,
    capability=(9, 4),
    wavefront_size=64,
    compute_units=304,
    lds_bytes=65536,
    lds_bytes_per_unit=65536,
    simds=4,
    waves_per_simd=8,
    registers_per_unit=131072,
    memory_gib=192,
)
_RELEASE: Final = "7.0"
_PROGRAM: Final = """
import torch
import triton
import triton.language as tl


@triton.jit
def add_one(x, y, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i) + 1)


tuned = triton.autotune([triton.Config({"BLOCK": size}) for size in (4, 8)], key=[], cache_results=True)(add_one)


def broken(x):
    y = torch.empty_like(x)
    add_one[(1,)](x, y, BLOCK=4)
    torch._dynamo.graph_break()
    return y.cos()


def product(x, w):
    return (x @ w).sin()
"""
_TUNED: Final = {
    "triton.cudagraphs": True,
    "graph_partition": False,
    "max_autotune_gemm": True,
    "max_autotune_gemm_backends": "ATEN,TRITON",
}
_GENERATED: Final = "triton_poi_fused_sin_0"  # the kernel of `product`
_calls: Final[Counter[str]] = Counter()  # of our replacements, by the name that they replace


def command() -> list[str]:
    """Return the command line of this program."""
    source = str(Path(__file__).parents[3])
    code = f"import sys; sys.path.insert(0, {source!r}); from {__name__} import main; main()"
    return [sys.executable, "-c", code]


def read_output(text: str) -> dict[str, str]:
    """Return what did not work by name, "" for a name that does; empty if the program ended before."""
    found = [line.removeprefix(_MARK) for line in text.splitlines() if line.startswith(_MARK)]
    results: dict[str, str] = json.loads(found[-1]) if found else {}
    return results


def main() -> None:
    """Compile, and print what was seen."""
    _count_calls()
    with tempfile.TemporaryDirectory() as folder:
        run = _dry_run(Path(folder))
        here = {str(name) for name in all_private_names() if name.releases.holds(_torch_version())}
        proofs = {names: _proven(proof, run) for names, proof in _PROOFS.items() if not here.isdisjoint(names)}
    results = {name: problem for names, problem in proofs.items() for name in names}
    print(_MARK + json.dumps(results), flush=True)  # noqa: T201 - the parent reads it


def _count_calls() -> None:
    """Count the calls of every replacement."""

    class CountingPatch(AttributePatch):
        def __init__(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
            key = f"{getattr(owner, '__module__', owner.__name__)}.{name}"
            super().__init__(owner, name, lambda original: _counted(key, make(original)))

    original = PrivateName.put

    def put(name: PrivateName, value: Any) -> None:
        original(name, _counted(f"{name.module}.{name.attribute}", value))

    private_api.AttributePatch = CountingPatch  # type: ignore[misc]
    PrivateName.put = put  # type: ignore[method-assign, assignment]


def _counted(key: str, function: Any) -> Any:
    if not callable(function):
        return function

    def count(*args: Any, **kwargs: Any) -> Any:
        _calls[key] += 1
        return function(*args, **kwargs)

    return count


@dataclass(frozen=True, kw_only=True)
class _Run:
    """What a tiny dry run left behind."""

    program: ModuleType
    record: LoweringRecord
    launches: LaunchRecord
    calls: Mapping[str, int]  # of our replacements, by the name that they replace

    def tuner(self) -> Any:
        """The autotuner object of a kernel that Inductor generated."""
        return lowering.load_kernel(*self.record.graphs[-1].sources[_GENERATED])


def _dry_run(folder: Path) -> _Run:
    from rocsolid.torchapi.pretend.device import build_stub_library, fake_mode, pretend_device

    torch = pretend_device(_CHIP, _RELEASE, build_stub_library(folder))
    program = _load(folder / "rocsolid_tiny_program.py")
    launches = triton_driver.record_launches(first_only=False)
    record = LoweringRecord()
    with fake_mode(), torch.no_grad():
        x, w = (torch.ones(7, 7, dtype=torch.float16, device="cuda") for _ in range(2))
        if compare(_torch_version(), "2.11") >= 0:  # a workload is not traced on earlier releases
            record = lowering.record_lowering(lambda _: None)
            torch.compile(program.broken, options={"triton.cudagraphs": True})(x)
            torch.compile(program.product, options=_TUNED)(x, w)
        with torch.cuda.device(0), contextlib.suppress(AttributeError, RuntimeError):
            torch.cuda.current_blas_handle()  # a function of builds for GPUs
        program.tuned[(1,)](x, w)
    return _Run(program=program, record=record, launches=launches, calls=_calls)


def _torch_version() -> str:
    import torch

    return str(torch.__version__)


def _called(name: str) -> Callable[[_Run], object]:
    module, _, attribute = name.rpartition(".")
    owner = ".".join(part for part in module.split(".") if not part[0].isupper())
    return lambda run: run.calls.get(f"{owner}.{attribute}", 0) > 0


def _grid(run: _Run) -> object:
    tuner, graph = run.tuner(), run.record.graphs[-1]
    call = next(arguments for name, arguments in graph.calls if name == _GENERATED)
    grid = lowering.grid_of(tuner, tuner.configs[0], call)
    return grid and all(type(axis) is int and axis > 0 for axis in grid)


def _template(run: _Run) -> object:
    (search,) = run.record.searches
    (_, load), *_ = search.tuners
    return "mm" in search.op and load().configs


def _interpreted(run: _Run) -> object:
    import torch

    x, y = torch.ones(4), torch.zeros(4)
    triton_driver._interpret(run.launches, run.program.add_one, (1,), (x, y, 4))
    return y.tolist() == [2.0] * 4


def _replaced_source(run: _Run) -> object:
    launch = run.launches.launches[0]
    triton_driver.replace_source(run.program.add_one, run.program.add_one.src.replace("+ 1", "* 3"))
    return "arith.mulf" in launch.check()


# What proves that torch and Triton still do what a dry run needs, by the names that it proves.
_PROOFS: Final[Mapping[tuple[str, ...], Callable[[_Run], object]]] = {
    **{
        (name,): _called(name)
        for name in (
            "torch._inductor.graph.GraphLowering.compile_to_module",
            "torch._inductor.output_code.cudagraph_post_compile",
            "torch._inductor.output_code.cudagraph_partition_post_compile",
            "torch._inductor.fx_passes.pad_mm.should_pad",
            "torch.cuda._exchange_device",
            "torch.cuda._maybe_exchange_device",
            "torch.cuda._lazy_init",
            "torch._C._cuda_cudaCachingAllocator_is_enabled",
            "triton.runtime.autotuner.Autotuner.check_disk_cache",
        )
    },
    ("torch._inductor.runtime.triton_helpers.set_driver_to_gpu",): lambda run: (
        run.tuner() and _called("torch._inductor.runtime.triton_helpers.set_driver_to_gpu")(run)
    ),
    (
        "torch._subclasses.fake_tensor.FakeTensorMode",
        "torch._subclasses.fake_tensor.FakeTensorMode.avoid_device_init",
        "torch._subclasses.fake_tensor.FakeTensor",
    ): lambda run: run.record.graphs,
    ("torch._inductor.codegen.triton.TritonScheduling.define_kernel",): lambda run: any(
        location.startswith(f"{run.program.__file__}:") for location in run.record.locations[_GENERATED]
    ),
    ("torch._inductor.codegen.wrapper.PythonWrapperCodegen.define_user_defined_triton_kernel",): lambda run: (
        run.program.add_one in run.record.user_functions.values() and run.record.user_kernels
    ),
    ("torch._inductor.ir.ExternKernel",): lambda run: [e.name for e in run.record.graphs[-1].externs] == ["mm"],
    (
        "torch._inductor.select_algorithm.TritonTemplateCaller",
        "torch._inductor.select_algorithm.AlgorithmSelectorCache.do_autotuning",
        "torch._inductor.codecache.PyCodeCache.load_by_key_path",
    ): _template,
    (
        "torch._inductor.codecache.PyCodeCache.load",
        "torch._inductor.runtime.triton_heuristics.CachingAutotuner._precompile_config",
    ): lambda run: "amdgcn" in lowering.compile_config(tuner := run.tuner(), tuner.configs[0]).asm,
    ("torch._inductor.runtime.triton_heuristics.GridExpr",): _grid,
    ("torch._dynamo.utils.graph_break_reasons",): lambda run: any(
        location.startswith(f"{run.program.__file__}:") for _, location in lowering.graph_breaks()
    ),
    ("triton.runtime.interpreter.InterpretedFunction", "triton.runtime.interpreter._patch_lang"): _interpreted,
    ("triton._C.libtriton.ir",): lambda run: "tt.store" in run.launches.launches[0].check(),
    ("triton.runtime.jit.JITFunction._unsafe_update_src",): _replaced_source,
}
NAMES: Final = tuple(name for names in _PROOFS for name in names)


def _proven(proof: Callable[[_Run], object], run: _Run) -> str:
    try:
        return "" if proof(run) else "it exists, and does something else than a dry run needs"
    except Exception as error:  # noqa: BLE001 - the result
        return f"{type(error).__name__}: {error}"[:300]


def _load(file: Path) -> ModuleType:
    file.write_text(_PROGRAM, encoding="utf-8")  # Triton reads the source of a kernel from its file
    sys.path.insert(0, str(file.parent))
    return importlib.import_module(file.stem)
