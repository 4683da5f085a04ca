"""A kernel of a project is loaded without the rest of its file, and how it is called is read from the source."""

import ast
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tests.support import in_ci

from rocsolid.api.dryrun import dryrun_kernels
from rocsolid.catalog.chips import chip
from rocsolid.dryrun.infer_signature import ProjectSource, infer, with_block_shape
from rocsolid.dryrun.kernel_loader import Loader, find_kernels, jit_function
from rocsolid.dryrun.kernel_signature import parse_signature, read_signatures, signature_text
from rocsolid.dryrun.request import KernelSignature
from rocsolid.dryrun.search_signature import search_signature
from rocsolid.dryrun.trace_workload import _replaced_libraries
from rocsolid.dryrun.user_kernels import device_libraries, with_callees
from rocsolid.errors import InputError

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(find_spec("triton") is None and not in_ci(), reason="Triton is not installed"),
]
PACKAGE = {
    "__init__.py": "raise RuntimeError('never imported')\n",
    "tools/__init__.py": "from .blocks import *\nfrom package.tools.blocks import SCALE as RENAMED\n",
    "tools/blocks.py": "SCALE = 3\nsizes = [n * SCALE for n in (1, 2)]\n",
    "triton_utils.py": "import no_such_module\ntriton = tl = None\nHAS_TRITON = False\n",
    "ops.py": """
import no_such_module
from no_such_package import thing, other

from package.tools import RENAMED, sizes
from package.triton_utils import HAS_TRITON, tl, triton
from . import tools

try:
    from no_such_package import fast_exp
except ImportError:
    from triton.language import exp as fast_exp

if RENAMED > 2:
    LIMIT = tools.sizes[0]
else:
    LIMIT = thing
no_such_module.register()


@triton.jit
def device(v):
    return fast_exp(v) * LIMIT


@no_such_module.decorated
@triton.autotune([triton.Config({"BLOCK": n}) for n in (64, 128)], key=[])
@triton.jit
def kernel(x, y, BLOCK: tl.constexpr = other.size):
    i = tl.arange(0, BLOCK)
    tl.store(y + i, device(tl.load(x + i)))
""",
}


@pytest.fixture(scope="module")
def ops(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("project") / "package"
    for name, text in PACKAGE.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root / "ops.py"


@pytest.mark.parametrize(
    ("statement", "libraries"),
    [
        ("from triton.language.extra.cuda import libdevice", ["triton.language.extra.cuda.libdevice"]),
        ("from triton.language.extra.cuda.libdevice import tanh", ["triton.language.extra.cuda.libdevice"]),
        ("from wrapper import libdevice", ["triton.language.extra.cuda.libdevice"]),
        ("from triton.language.extra import libdevice", []),
        ("from chooser import libdevice", []),  # depends on the GPU, so the library of the target is taken
    ],
)
def test_the_device_library_is_the_one_that_the_file_imports(
    tmp_path: Path, statement: str, libraries: list[str]
) -> None:
    name = "tanh" if statement.endswith("tanh") else "libdevice.tanh"
    (tmp_path / "wrapper.py").write_text("from triton.language.extra.cuda import libdevice\n")
    (tmp_path / "chooser.py").write_text(
        "import gpus\nif gpus.amd:\n    from triton.language.extra.hip import libdevice\n"
        "else:\n    from triton.language.extra.cuda import libdevice\n"
    )
    file = tmp_path / "kernels.py"
    file.write_text(
        f"import triton\nimport triton.language as tl\n{statement}\n\n\n"
        f"@triton.jit\ndef kernel(x, y):\n    tl.store(y, {name}(tl.load(x)))\n"
    )
    (found,) = find_kernels(ast.parse(file.read_text()), file)
    kernel = Loader().module(file).kernel(found)

    assert device_libraries(kernel) == libraries
    in_a_graph = [
        f"device library {name.removeprefix('triton.language.')} (replaced by torch.compile" for name in libraries
    ]
    assert [text.partition(";")[0] for text in _replaced_libraries(kernel, chip("gfx942"))] == in_a_graph
    assert _replaced_libraries(kernel, chip("sm_90")) == []


def test_only_what_a_kernel_needs_is_loaded(ops: Path) -> None:
    module = Loader().module(ops)
    kernels = {k.name: module.kernel(k) for k in find_kernels(ast.parse(ops.read_text()), ops)}

    assert set(kernels) == {"device", "kernel"}
    function = jit_function(kernels["kernel"])
    assert function.fn.__globals__["device"] is kernels["device"]
    assert module["LIMIT"] == 3
    assert module["HAS_TRITON"] is True
    assert module["fast_exp"].__module__ == "triton.language.math"
    assert function.fn.__code__.co_filename == str(ops)
    assert [config.kwargs["BLOCK"] for config in kernels["kernel"].configs] == [64, 128]
    with pytest.raises(ImportError):
        module["thing"]


def load(file: Path, name: str) -> Any:
    (found,) = [k for k in find_kernels(ast.parse(file.read_text()), file) if k.name == name]
    return jit_function(Loader().module(file).kernel(found))


def test_a_package_is_found_in_a_folder_of_the_same_name(tmp_path: Path) -> None:
    """And below folders without `__init__.py`; a module of the package does not hide Triton."""
    folder = tmp_path / "package" / "package"
    (folder / "layers").mkdir(parents=True)
    (folder / "__init__.py").touch()
    (folder / "sizes.py").write_text("SIZE = 7\n")
    (folder / "layers" / "triton.py").write_text("jit = None\n")
    file = folder / "layers" / "ops.py"
    file.write_text("import triton\nfrom package.sizes import SIZE\n@triton.jit\ndef kernel(x):\n    SIZE\n")

    assert load(file, "kernel").fn.__globals__["SIZE"] == 7


UNKNOWN_PLATFORM = """
from no_such_module import platform
from no_such_package import cdiv
info = platform.info()
if platform.is_rocm():
    import triton
    import triton.language as tl

    @triton.jit
    def kernel(x, LOW: tl.constexpr = info.min, HIGH: tl.constexpr = 3):
        tl.store(x, tl.cdiv(LOW, HIGH))
"""


def test_a_block_is_loaded_whose_condition_cannot_be_evaluated(tmp_path: Path) -> None:
    """Defaults that cannot be evaluated are replaced, also in the source that Triton reads."""
    file = tmp_path / "ops.py"
    file.write_text(UNKNOWN_PLATFORM)
    function = load(file, "kernel")

    assert "LOW: tl.constexpr = None, HIGH: tl.constexpr = 3" in function.src
    assert with_callees(function) == [function]


def signatures(source: str, name: str) -> list[KernelSignature]:
    tree = ast.parse(source)
    project = ProjectSource()
    kernels = {k.name: k.node for k in find_kernels(tree, Path("x.py"))}
    project.add(tree, list(kernels.values()))
    return list(infer(kernels[name], project))


LAUNCHED = """
import triton
import triton.language as tl

SIZE = 512


@triton.jit
def gathered(base, rows, stride):
    return tl.load(base + rows * stride)


@triton.jit
def lookup(out, weights, block_ids, lse, n, stride, eps, KIND: tl.constexpr, HAS_BIAS: tl.constexpr, BLOCK: tl.constexpr,
           OUT_DTYPE: tl.constexpr, GIVEN: tl.constexpr = 3):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    rows = tl.load(block_ids + i, mask=i < n)
    v = gathered(weights, rows, stride) + tl.load(lse) + eps
    if KIND == "gelu":
        v += 1
    if HAS_BIAS:
        v += GIVEN
    target = out + i
    target += n
    tl.store(target, v.to(OUT_DTYPE))


def call(x, bias=None):
    block = triton.next_power_of_2(SIZE - 100)
    lookup[(1,)](x, x, x, x, x.numel(), x.stride(0), 1e-5, BLOCK=block, HAS_BIAS=bias is not None, num_warps=8)
"""


def test_a_signature_is_inferred_from_the_kernel_and_its_launch() -> None:
    first = signatures(LAUNCHED, "lookup")[0]

    assert first.types == {
        "out": "*bf16",
        "weights": "*bf16",
        "block_ids": "*i32",
        "lse": "*fp32",
        "n": "i32",
        "stride": "i32",
        "eps": "fp32",
    }
    assert first.constants == {"KIND": "gelu", "HAS_BIAS": True, "BLOCK": 512, "OUT_DTYPE": "tl.bfloat16", "GIVEN": 3}
    assert first.options == {"num_warps": 8}


TYPED = """
import torch
import triton
import triton.language as tl


@triton.jit
def typed(x, b, is_used, weights_s0, weight, scale, bits, seed, out, fp8, ratio, WEIGHTS_STEP: tl.constexpr):
    i = tl.program_id(0) * weights_s0 + WEIGHTS_STEP
    value = tl.load(x + i) * weight * (scale * ratio).to(tl.int32) + tl.load(b)
    tl.load(bits + i).to(tl.int32, bitcast=True) >> 4
    tl.store(out + i, tl.load(is_used + i) * value * tl.load(seed))
    tl.store(fp8 + i, value)


@triton.jit
def scaled(x, x_scale, y, y_scale, o):
    tl.store(o, tl.dot_scaled(tl.load(x), tl.load(x_scale), "e4m3", tl.load(y), tl.load(y_scale), "e2m1"))


def call(a: torch.Tensor, weight: float, position: int, mask: torch.Tensor, bits, step, dtype, ratio: torch.Tensor):
    b = a.to(torch.float16).contiguous()
    out = torch.empty_like(b)
    fp8 = torch.empty(a.shape, dtype=current_platform.fp8_dtype())
    typed[(1,)](a[:, 0], b, mask.bool(), a.stride(0), weight, position * 2, bits, step, out, fp8, ratio, step)
"""


def test_types_are_read_from_the_function_that_launches() -> None:
    first = signatures(TYPED, "typed")[0]

    assert first.types == {
        "x": "*bf16",  # annotated as a tensor
        "b": "*fp16",
        "is_used": "*i1",
        "weights_s0": "i32",
        "weight": "fp32",
        "scale": "i32",
        "bits": "*fp32",  # the bits of a float of that size
        "seed": "*i32",
        "out": "*fp16",
        "fp8": "*fp8e4nv",
        "ratio": "fp32",  # the kernel multiplies with it
    }
    assert first.constants == {"WEIGHTS_STEP": 64}  # part of an address, so it is no float


def test_operands_of_scaled_products_have_the_types_of_their_formats() -> None:
    first = signatures(TYPED, "scaled")[0]

    assert first.types == {"x": "*fp8e4nv", "x_scale": "*u8", "y": "*u8", "y_scale": "*u8", "o": "*bf16"}


CASTS = """
import triton
import triton.language as tl


@triton.jit
def product(a, b, table, rows):
    x = tl.load(a + rows)
    y = tl.load(tl.load(table).to(tl.pointer_type(tl.bfloat16)) + rows)
    return tl.dot(x.to(tl.float8e4nv, bitcast=True), y) + tl.load(b).to(tl.uint16, bitcast=True)


@triton.jit
def kernel(cache, halves, table, out, offset, HC: tl.constexpr, WIDTH_BLOCK: tl.constexpr, BM: tl.constexpr, BN_HALF: tl.constexpr):
    rows = tl.arange(0, BM)[:, None] * 2 + tl.arange(0, BN_HALF) + tl.arange(0, HC)
    value = product(cache, halves, table, rows)
    for i in tl.static_range(1, HC):
        for j in tl.static_range(WIDTH_BLOCK):
            value += i * j
    tl.store(out + rows, value + offset.to(tl.float32))


def call(x, offset: torch.Tensor):
    kernel[(1,)](x, x, x, x, offset)
"""


def test_casts_loops_and_device_functions_show_types_and_lengths() -> None:
    first = signatures(CASTS, "kernel")[0]

    assert first.types == {
        "cache": "*u8",  # its bits are those of an FP8 format
        "halves": "*bf16",
        "table": "*i64",  # addresses
        "out": "*bf16",
        "offset": "i32",  # no pointer can be cast to a float
    }
    assert first.constants == {
        "HC": 4,
        "WIDTH_BLOCK": 32,
        "BM": 32,
        "BN_HALF": 16,
    }  # short blocks, as matrices are multiplied


def test_launches_of_another_kernel_of_the_same_name_are_not_used() -> None:
    kernel = "import triton\nimport triton.language as tl\n@triton.jit\ndef kernel(x, {}, SEM: tl.constexpr):\n    tl.atomic_add(x + {}, 1, sem=SEM)\n"
    ours, theirs, user = (
        ast.parse(text)
        for text in (
            kernel.format("step", "step"),
            kernel.format("y", "0") + "\ndef call(a, b: float):\n    kernel[(1,)](a, b)\n",
            "from .ours import kernel\ndef call(a: torch.Tensor):\n    kernel[(1,)](a.long(), a.stride(0), num_warps=2)\n",
        )
    )
    project = ProjectSource()
    found = {tree: [k.node for k in find_kernels(tree, Path("x.py"))] for tree in (theirs, ours, user)}
    for tree, nodes in found.items():
        project.add(tree, nodes)

    first = next(infer(found[ours][0], project))
    assert (first.types, first.options) == ({"x": "*i64", "step": "i32"}, {"num_warps": 2})
    assert first.constants == {"SEM": "relaxed"}
    assert next(infer(found[theirs][0], project)).types["y"] == "fp32"


def test_functions_that_call_each_other_by_name_are_followed_to_an_end() -> None:
    """Triton has no recursion, but a method may have the name of a device function."""
    body = (
        "import triton\nimport triton.language as tl\n@triton.jit\ndef {}(x, y):\n    return tl.load(x) + y.{}(x, y)\n"
    )
    source = (
        body.format("load_one", "load_two") + body.format("load_two", "load_one") + body.format("kernel", "load_two")
    )

    assert signatures(source, "kernel")[0].types == {"x": "*bf16", "y": "i32"}


def test_many_assignments_are_followed_once() -> None:
    """Each variable is computed from the one before, on three paths: 3 ** 40 in all."""
    lines = [f"    v{i + 1} = (v{i} + v{i}.to(tl.int64)) % v{i}" for i in range(40)]
    body = ["    v0 = tl.load(table)", *lines, "    tl.store(out + v40, v40)"]
    source = "\n".join(["import triton", "@triton.jit", "def kernel(table, out, n):", *body])

    assert signatures(source, "kernel")[0].types == {"table": "*i32", "out": "*bf16", "n": "i32"}


def test_further_variants_have_other_types_and_conditions() -> None:
    found = signatures(LAUNCHED, "lookup")

    assert {s.types["weights"] for s in found} == {"*bf16", "*fp32", "*fp16"}
    assert {s.constants["HAS_BIAS"] for s in found} == {True, False}


def test_device_functions_are_not_kernels() -> None:
    tree = ast.parse(LAUNCHED)
    project = ProjectSource()
    project.add(tree, [k.node for k in find_kernels(tree, Path("x.py"))])

    device = {name: project.is_device_function(nodes[0]) for name, nodes in project.kernels.items()}
    assert device == {"gathered": True, "lookup": False}


def test_a_function_that_returns_a_value_is_not_a_kernel() -> None:
    source = "import triton\n@triton.jit\ndef softplus(x):\n    return x\n"
    tree = ast.parse(source)
    (found,) = find_kernels(tree, Path("x.py"))
    project = ProjectSource()
    project.add(tree, [found.node])

    assert project.is_device_function(found.node)


def test_signatures_are_written_and_read(tmp_path: Path) -> None:
    first: Any = signatures(LAUNCHED, "lookup")[0]
    text = signature_text(first)
    file = tmp_path / "signatures.txt"
    file.write_text(f"# kernels\n\nops/x.py:{text}\n")
    (read,) = read_signatures(file)

    assert parse_signature(text) == first
    assert (read.file, read.constants) == ("ops/x.py", first.constants)
    with pytest.raises(InputError, match="cannot read"):
        read_signatures(tmp_path / "missing.txt")


WRONG_TYPES = """
import triton
import triton.language as tl


@triton.jit
def kernel(a, b, addrs, OUT_KIND: tl.constexpr, PRECISION: tl.constexpr, BLOCK: tl.constexpr):
    x = tl.load(a)
    if OUT_KIND == 2:
        y = x + tl.load(b)
    z = tl.dot(x, y, input_precision=PRECISION)
    tl.store(tl.load(addrs).to(tl.pointer_type(tl.int32)), z + tl.arange(0, BLOCK))
"""


def search(source: str, check: Callable[[KernelSignature], str]) -> KernelSignature | str:
    tree = ast.parse(source)
    (found,) = find_kernels(tree, Path("x.py"))
    project = ProjectSource()
    project.add(tree, [found.node])
    return search_signature(found.node, project, [], check)


class FrontendError(Exception):
    """As Triton's error: at a line of the kernel, of which the first is that of `def`."""

    def __init__(self, line: int) -> None:
        super().__init__(f"error in line {line}")
        self.node = ast.Pass(lineno=line)


def test_arguments_are_changed_until_triton_accepts_them() -> None:
    """Those next to the line of the error; a block that is too large is shortened."""
    checked = []

    def check(signature: KernelSignature) -> str:
        checked.append(signature)
        for wanted, line in (({"a": "*fp8e4nv"}, 2), ({"b": "*u8"}, 4)):
            if not wanted.items() <= signature.types.items():
                raise FrontendError(line)
        block: Any = signature.constants["BLOCK"]
        return f"tensor<{block * 256}x{block * 256}xf32>"

    found = search(WRONG_TYPES, check)

    assert isinstance(found, KernelSignature)
    assert found.types == {"a": "*fp8e4nv", "b": "*u8", "addrs": "*i64"}
    assert found.constants == {"OUT_KIND": 2, "PRECISION": "ieee", "BLOCK": 4}
    assert len(checked) < 40


def test_the_reason_is_that_of_the_signature_that_came_furthest() -> None:
    def check(signature: KernelSignature) -> str:
        raise FrontendError(5 if signature.types.get("a") == "*i32" else 2)

    assert search(WRONG_TYPES, check) == "no signature found that Triton accepts: FrontendError: error in line 5"


INDEPENDENT = """
import triton
import triton.language as tl


@triton.jit
def kernel(x, SIZE: tl.constexpr):
    zero = tl.float32(0.0)
    zero += tl.load(x)
    if SIZE > 2:
        one = tl.float32(1.0)
    size = SIZE * 2
    two = tl.float32(size)
"""


@pytest.mark.parametrize("line", [2, 5, 7])
def test_no_argument_can_help_where_none_is_used(line: int) -> None:
    def check(_: KernelSignature) -> str:
        raise FrontendError(line)

    reason = f"FrontendError: error in line {line}"
    independent = f"Triton does not accept `zero = tl.float32(0.0)`, whatever the arguments are: {reason}"
    assert search(INDEPENDENT, check) == (
        independent if line == 2 else f"no signature found that Triton accepts: {reason}"
    )


def test_a_block_that_is_too_large_for_triton_is_shortened() -> None:
    def check(signature: KernelSignature) -> str:
        block: Any = signature.constants["BLOCK"]
        if block > 16:
            raise TooLargeError
        return ""

    class TooLargeError(Exception):
        def __init__(self) -> None:
            super().__init__("numel (2097152) exceeds triton maximum tensor numel (1048576)")
            self.node = ast.Pass(lineno=6)

    found = search(WRONG_TYPES, check)

    assert isinstance(found, KernelSignature)
    assert found.constants["BLOCK"] == 16


def test_shortening_a_block_that_does_not_help_is_tried_once() -> None:
    checked = []

    def check(signature: KernelSignature) -> str:
        checked.append(signature)
        block: Any = signature.constants["BLOCK"]
        return f"tensor<{block << 18}xf32>"

    source = "import triton\n@triton.jit\ndef kernel(x, STEP: tl.constexpr, BLOCK: tl.constexpr):\n    tl.load(x + tl.arange(0, BLOCK) * STEP)\n"
    found = search(source, check)

    assert isinstance(found, KernelSignature)
    assert found.constants == {"STEP": 64, "BLOCK": 8}
    assert sum(signature.constants["STEP"] == 32 for signature in checked) == 1


def test_code_that_mlir_rejects_is_not_taken_for_progress() -> None:
    def check(signature: KernelSignature) -> str:
        if signature.types.get("a") == "*fp8e4nv":
            msg = "error encountered during parsing"
            raise RuntimeError(msg)
        raise FrontendError(2)

    assert search(WRONG_TYPES, check) == "no signature found that Triton accepts: FrontendError: error in line 2"


def test_tensor_descriptors_of_the_caller_are_the_reason() -> None:
    def check(_: KernelSignature) -> str:
        msg = "'tensor' object has no attribute 'load'"
        raise AttributeError(msg)

    source = "import triton\n@triton.jit\ndef kernel(desc, out):\n    out.store([0], desc.load([0]))\n"

    assert search(source, check) == (
        "takes tensor descriptors (`desc`, `out`) whose block shape is unknown: no launch and no pre_hook shows it."
        " Give it: --kernel 'kernel(desc=tensordesc<bf16[64, 64]>, …)'"
    )


DESCRIPTORS = """
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def scale(source, output, M: tl.constexpr, N: tl.constexpr):
    output.store([tl.program_id(0) * M, 0], source.load([tl.program_id(0) * M, 0]) * 2)


def set_blocks(nargs):
    M = nargs["M"]
    nargs["inputs"].block_shape = [M, nargs["N"]]
    nargs["result"].block_shape = [M, nargs["N"]]


@triton.autotune([triton.Config({"M": 32, "N": 64}, pre_hook=set_blocks)], key=[])
@triton.jit
def tuned(inputs, result, M: tl.constexpr, N: tl.constexpr):
    result.store([tl.program_id(0) * M, 0], inputs.load([tl.program_id(0) * M, 0]) * 2)


def launch(x, y, rows):
    columns = 64
    output = TensorDescriptor.from_tensor(y, [rows, columns])
    scale[(4,)](TensorDescriptor(x, x.shape, x.stride(), block_shape=[rows, columns]), output, M=rows, N=columns)
"""


def test_kernels_that_take_descriptors_compile_for_amd(tmp_path: Path) -> None:
    """Triton lowers them to ordinary loads; the block shapes are those of the launch and of the autotuner's hook."""
    file = tmp_path / "descriptors.py"
    file.write_text(DESCRIPTORS, encoding="utf-8")

    (run,) = dryrun_kernels(file, cache=tmp_path / "cache").runs

    assert {kernel.name: kernel.signature for kernel in run.kernels} == {
        "scale": "inferred: scale(source=tensordesc<bf16[M, N]>, output=tensordesc<bf16[M, N]>, M=64, N=64)",
        "tuned": "inferred: tuned(inputs=tensordesc<bf16[M, N]>, result=tensordesc<bf16[M, N]>)",
    }
    for kernel in run.kernels:
        assert kernel.descriptors
        assert all(config.resources for config in kernel.configs), [config.error for config in kernel.configs]


def test_a_signature_may_name_the_block_shape_of_a_descriptor() -> None:
    text = "scale(source=tensordesc<bf16[M, 64]>, M=32, num_warps=8)"
    signature = parse_signature(text)

    assert signature.types == {"source": "tensordesc<bf16[M, 64]>"}
    assert signature_text(signature) == text
    assert with_block_shape("tensordesc<bf16[M, 64 * 2]>", {"M": 32}) == "tensordesc<bf16[32, 128]>"
    with pytest.raises(ValueError, match="unknown"):
        with_block_shape("tensordesc<bf16[M]>", {})
