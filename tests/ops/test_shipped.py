"""The ready-made operators: results and gradients match the references, and the kernels compile for AMD GPUs."""

import json
import re
import sys
from typing import Any

import pytest
from tests.support import ROOT, clean_environ, needs_torch, run_python

pytestmark = pytest.mark.torch
torch: Any = pytest.importorskip("torch")

from rocsolid.model.release import compare  # noqa: E402
from rocsolid.ops import linear_act, shipped  # noqa: E402
from rocsolid.ops.audit_op import audit_op  # noqa: E402
from rocsolid.ops.shipped import aiter_kernels, operators, references  # noqa: E402
from rocsolid.ops.shipped.device import Gpu  # noqa: E402

NAMES = ["rms_norm", "add_rms_norm", "silu_mul", "gelu_mul", "attention"]
# Shared memory of a compute unit in bytes: what a kernel that wants more fails on at launch, and not before.
CHIPS = {"gfx90a": 65536, "gfx942": 65536, "gfx950": 163840, "gfx1100": 65536, "sm_90": 232448}
AMD = [chip for chip in CHIPS if chip.startswith("gfx")]


def arguments(name: str, *, device: str = "cpu", dtype: Any = None, denoiser: bool = False) -> tuple[Any, ...]:
    """Small, or with the sizes of the denoiser in the benchmarks."""

    def random(*shape: int) -> Any:
        return torch.randn(*shape, device=device, dtype=torch.float32).to(dtype or torch.float32)

    rows, columns, wide = (50, 1024, 4096) if denoiser else (5, 32, 48)
    heads, keys, width = (8, 850, 128) if denoiser else (4, 9, 16)
    given = {
        "rms_norm": (random(rows, columns), random(columns), 1e-6),
        "add_rms_norm": (random(rows, columns), random(rows, columns), random(columns), 1e-6),
        "silu_mul": (random(rows, wide), random(rows, wide)),
        "gelu_mul": (random(rows, wide), random(rows, wide), True),
        "attention": (
            random(1, heads, rows, width),
            random(1, heads // 2, keys, width),
            random(1, heads // 2, keys, width),
            None,
            False,
        ),
    }
    return given[name]


def leaves(args: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(a.detach().clone().requires_grad_() if isinstance(a, torch.Tensor) else a for a in args)


def operator(name: str) -> Any:
    return getattr(torch.ops.rocsolid, name).default


def flat(value: Any) -> list[Any]:
    return list(value) if isinstance(value, tuple) else [value]


def gradients(function: Any, args: tuple[Any, ...]) -> list[Any]:
    given = leaves(args)
    sum(out.float().sin().sum() for out in flat(function(*given))).backward()
    return [a.grad for a in given if isinstance(a, torch.Tensor)]


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")  # opcheck's own, with torch 2.15
@pytest.mark.parametrize("name", NAMES)
def test_an_operator_passes_opcheck_and_the_audit(name: str) -> None:
    torch.library.opcheck(operator(name), leaves(arguments(name)))
    audit = audit_op(f"rocsolid::{name}")

    assert audit.findings == ()


@pytest.mark.parametrize("name", NAMES)
def test_results_and_gradients_match_the_reference(name: str) -> None:
    args = arguments(name)
    reference = getattr(references, name)

    for result, expected in zip(flat(operator(name)(*args)), flat(reference(*args)), strict=True):
        torch.testing.assert_close(result, expected)
    for result, expected in zip(gradients(operator(name), args), gradients(reference, args), strict=True):
        torch.testing.assert_close(result, expected)


def test_the_references_match_torch() -> None:
    x, weight, _ = arguments("rms_norm")
    gate, up = arguments("silu_mul")
    q, k, v, _, _ = arguments("attention")
    functional = torch.nn.functional

    torch.testing.assert_close(references.rms_norm(x, weight), functional.rms_norm(x, (32,), weight, 1e-6))
    torch.testing.assert_close(references.silu_mul(gate, up), functional.silu(gate) * up)
    torch.testing.assert_close(references.gelu_mul(gate, up), functional.gelu(gate) * up)
    for causal in (False, True):
        expected = functional.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)
        torch.testing.assert_close(references.attention(q, k, v, None, causal), expected)


def test_a_layer_compiles_to_one_graph_with_dynamic_sizes() -> None:
    weight = torch.randn(32)
    up_weight = torch.randn(96, 32)

    def layer(x: Any) -> Any:
        normed, total = shipped.add_rms_norm(x, x * 0.5, weight)
        gate, up = shipped.linear(normed, up_weight).chunk(2, -1)
        return total.sum() + shipped.gelu_mul(gate, up, tanh=True).sum() + shipped.silu_mul(gate, up).sum()

    compiled = torch.compile(layer, fullgraph=True, dynamic=True, backend="aot_eager")
    for rows in (3, 5):
        x = torch.randn(rows, 32)
        torch.testing.assert_close(compiled(x), layer(x))
    torch._dynamo.reset()


@pytest.mark.parametrize(
    ("name", "kept"), [("silu_mul", False), ("add_rms_norm", False), ("gelu_mul", True), ("rms_norm", True)]
)
def test_compiled_graphs_use_inductors_kernel_where_it_is_faster(name: str, kept: bool) -> None:  # noqa: FBT001
    seen: list[str] = []

    def backend(graph: Any, _inputs: Any) -> Any:
        seen.extend(str(node.target) for node in graph.graph.nodes)
        return graph.forward

    args = tuple(a for a in arguments(name) if isinstance(a, torch.Tensor))
    result = torch.compile(getattr(shipped, name), backend=backend, fullgraph=True)(*args)
    torch.testing.assert_close(result, getattr(shipped, name)(*args))
    assert any("rocsolid" in target for target in seen) is kept
    torch._dynamo.reset()


def test_aiter_is_not_used_without_an_amd_gpu() -> None:
    assert not aiter_kernels.supports(torch.ones(2, dtype=torch.bfloat16))
    assert shipped.attention(*arguments("attention")[:3]).shape == (1, 4, 5, 16)


class StandInForAiter:
    """Stand-ins with the names and signatures of AITER's functions, which call the references."""

    @staticmethod
    def rmsnorm2d_fwd(x: Any, weight: Any, epsilon: float) -> Any:
        assert x.dim() == 2
        return references.rms_norm(x, weight, epsilon)

    @staticmethod
    def rmsnorm2d_fwd_with_add(
        out: Any, x: Any, residual_in: Any, residual_out: Any, weight: Any, epsilon: float
    ) -> None:
        normed, total = references.add_rms_norm(x, residual_in, weight, epsilon)
        out.copy_(normed)
        residual_out.copy_(total)

    @staticmethod
    def flash_attn_func(q: Any, k: Any, v: Any, dropout_p: float = 0.0, softmax_scale: Any = None, **more: Any) -> Any:
        assert dropout_p == 0.0
        queries, keys, values = (t.transpose(1, 2) for t in (q, k, v))
        return references.attention(queries, keys, values, softmax_scale, more["causal"]).transpose(1, 2)

    class tgemm:  # noqa: D106, N801 - as it is called there
        @staticmethod
        def mm(x: Any, weight: Any, bias: Any = None, otype: Any = None) -> Any:
            assert x.dim() == 2
            return references.linear(x, weight, bias).to(otype)


def test_aiter_kernels_get_the_layout_they_need(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in for the package: flattened rows, transposed heads and tokens, new result tensors."""
    for name in ("aiter", "aiter.tuned_gemm"):
        monkeypatch.setitem(sys.modules, name, StandInForAiter)
    monkeypatch.setattr(aiter_kernels, "supports", lambda *_: True)
    x, weight = torch.randn(2, 3, 32), torch.randn(32)
    wide = torch.randn(16, 32)
    q, k, v = arguments("attention")[:3]

    torch.testing.assert_close(shipped.rms_norm(x, weight), references.rms_norm(x, weight))
    torch.testing.assert_close(shipped.add_rms_norm(x, x, weight), references.add_rms_norm(x, x, weight))
    torch.testing.assert_close(shipped.attention(q, k, v, causal=True), references.attention(q, k, v, None, True))
    torch.testing.assert_close(shipped.linear(x, wide), references.linear(x, wide))
    compiled = torch.compile(
        lambda x: shipped.linear(shipped.rms_norm(x, weight), wide), fullgraph=True, backend="aot_eager"
    )
    torch.testing.assert_close(compiled(x), references.linear(references.rms_norm(x, weight), wide))
    for name, given in (
        ("rms_norm", (x, weight, 1e-6)),
        ("attention", (q, k, v, None, False)),
        ("linear", (x, wide, None)),
    ):
        torch.library.opcheck(getattr(torch.ops.rocsolid, f"aiter_{name}").default, given, test_utils="test_faketensor")
    torch._dynamo.reset()


def skip_unless_interpreted() -> None:
    triton, numpy = pytest.importorskip("triton"), pytest.importorskip("numpy")
    if compare(triton.__version__, "3.7") < 0 and compare(numpy.__version__, "2.4") >= 0:
        pytest.skip(f"the interpreter of triton {triton.__version__} does not work with numpy {numpy.__version__}")


def test_the_kernels_match_in_tritons_interpreter() -> None:
    skip_unless_interpreted()
    ran = run_python(str(ROOT / "tests/ops/interpreted.py"), env=clean_environ(TRITON_INTERPRET="1"))

    assert ran.code == 0, ran.err[-2000:]
    assert len(ran.out.splitlines()) == 10 + 3 + 13 + 16 + 18 + 2 + 52


def test_the_compiler_sees_the_kernels_and_their_mutations() -> None:
    """With fake tensors on a simulated AMD GPU: each kernel is one node, sizes are dynamic, and only results are written."""
    pytest.importorskip("triton")
    ran = run_python(str(ROOT / "tests/ops/traced.py"))
    assert ran.code == 0, ran.err[-2000:]
    expected = [
        ("rms_norm", [["out"]]),
        ("add_rms_norm", [["out", "total"]]),
        ("silu_mul", [["out"]]),
        ("gelu_mul", [["out"]]),
    ]
    found = [json.loads(line) for line in ran.out.splitlines()]

    assert [(f["operator"], f["written"]) for f in found] == expected * 2


def test_inductor_copies_no_input_or_result_of_attention_and_linear_act(tmp_path: Any) -> None:
    """Where a pass has changed strides, slices are read as they are, and the next product reads the result as it is."""
    pytest.importorskip("triton")
    needs_torch("2.11", "older ones cannot compile fake tensors")
    ran = run_python(str(ROOT / "tests/ops/lowered.py"), str(tmp_path))
    assert ran.code == 0, ran.err[-2000:]
    merging_weights, *kernels = ran.out.split()

    assert merging_weights.startswith("triton_poi")
    attention, act = "torch.ops.rocsolid.attention.default", "torch.ops.rocsolid.linear_act.default"
    assert kernels == ["extern_kernels.mm", attention, "extern_kernels.mm", act]


def jobs_for(chip: str) -> list[tuple[Any, dict[str, Any], int, int]]:
    """Kernels with their constants, warps and stages: those of the denoiser and of BERT, as they are launched on that chip."""
    from rocsolid.ops.shipped import kernels, tiles

    is_rdna, pdl = chip == "gfx1100", chip == "sm_90"
    device = Gpu(32 if is_rdna or pdl else 64, 132 if pdl else 304, is_rdna=is_rdna, shared_bytes=CHIPS[chip])
    given = {"MASK": "none", "MASK_PER_QUERY": False, "MORE": False, "CAUSAL": False, "SPLIT_KEYS": True}
    given |= {"PRECISION": "ieee", "PDL": pdl}

    def attention(tile: Any, head_dim: int, **constants: Any) -> tuple[Any, dict[str, Any], int, int]:
        blocks = {"HEAD_DIM": head_dim, "BLOCK_M": tile.rows, "BLOCK_N": tile.columns}
        return kernels.attention_kernel, {**given, **blocks, **constants}, tile.warps, tile.stages

    def product(kernel: Any, tile: Any, **constants: Any) -> tuple[Any, dict[str, Any], int, int]:
        blocks = {"BLOCK_M": tile.rows, "BLOCK_N": tile.columns, "BLOCK_K": tile.inner}
        fixed = {"PRECISION": "ieee", "PDL": pdl, "EVEN": True, "ROW_MAJOR": False}
        fixed["SWAP"] = tile.rows < 64 <= tile.columns
        return kernel, {**fixed, **blocks, **constants}, tile.warps, tile.stages

    denoiser = tiles.attention_tiles(8, 50, 850, 128, device)[0]
    bert = tiles.attention_tiles(12, 128, 128, 64, device)[0]
    long = tiles.attention_tiles(64, 1024, 1024, 128, device)[0]
    act = {"ACTIVATION": "gelu", "GATED": False, "BIAS": True}
    norms_and_gates: list[Any] = [
        (kernels.rms_norm_kernel, {"BLOCK": 1024}, 2, 2),
        (kernels.add_rms_norm_kernel, {"BLOCK": 1024}, 2, 2),
        *((kernels.gate_mul_kernel, {"ACTIVATION": n, "BLOCK": 1024}, 2, 2) for n in ("silu", "gelu", "gelu_tanh")),
    ]
    return [
        *([] if pdl else norms_and_gates),
        attention(denoiser, 128),
        attention(denoiser, 128, MORE=True),
        attention(long, 128, CAUSAL=True, SPLIT_KEYS=False),
        attention(bert, 64, MASK="add", MASK_PER_QUERY=True, SPLIT_KEYS=False),
        attention(bert, 64, MASK="bool", SPLIT_KEYS=False),
        (kernels.join_splits_kernel, {"PDL": pdl, "HEAD_DIM": 128, "SPLIT_BLOCK": 16}, 1, 2),
        *(
            product(kernels.split_matmul_kernel, tiles.product_tiles(*shape, device)[0], EVEN=even)
            for shape, even in (((128, 3072, 768), True), ((50, 4096, 1024), False), ((1, 4096, 1024), True))
        ),
        *(
            product(kernels.linear_act_kernel, tiles.product_tiles(*shape, device, 1)[0], **act)
            for shape in ((128, 768, 3072), (197, 768, 3072), (1, 1024, 4096))
        ),
        product(
            kernels.linear_act_kernel,
            tiles.product_tiles(32, 1024, 2816, device, 1, gated=True)[0],
            ACTIVATION="silu",
            GATED=True,
            BIAS=False,
            ROW_MAJOR=True,
        ),
    ]


def compiled_for(chip: str) -> dict[str, Any]:
    """Machine code of every kernel for one chip."""
    triton = pytest.importorskip("triton")
    from triton.backends.compiler import GPUTarget

    names = [
        "x",
        "residual",
        "weight",
        "bias",
        "out",
        "total",
        "gate",
        "up",
        "q",
        "k",
        "v",
        "more_k",
        "more_v",
        "mask",
        "maxima",
        "sums",
        "a",
        "b",
    ]
    compiled = {}
    for number, (kernel, constants, warps, stages) in enumerate(jobs_for(chip)):
        known = {**dict.fromkeys(names, "*bf16"), "split_results": "*fp32", "eps": "fp32", "scale": "fp32"}
        if constants.get("SPLIT_KEYS") or kernel.__name__ in ("split_matmul_kernel", "join_splits_kernel"):
            parts = ("out", "maxima", "sums") if "SPLIT_KEYS" in constants else ("maxima", "sums")
            known |= dict.fromkeys(("out",) if kernel.__name__ == "split_matmul_kernel" else parts, "*fp32")
        if constants.get("MASK") == "bool":
            known["mask"] = "*i1"
        types = {name: "constexpr" if name in constants else known.get(name, "i32") for name in kernel.arg_names}
        source = triton.compiler.ASTSource(
            fn=kernel,
            signature=types,
            constexprs={(kernel.arg_names.index(name),): value for name, value in constants.items()},
            attrs={(n,): [["tt.divisibility", 16]] for n, kind in enumerate(types.values()) if kind.startswith("*")},
        )
        # Explicit, because Triton 3.9 warns about its default, which 3.10 changes.
        options = {"num_warps": warps, "num_stages": stages, "enable_fp_fusion": True}
        target = GPUTarget("hip", chip, 32 if chip == "gfx1100" else 64)
        if chip == "sm_90":
            target, options["launch_pdl"] = GPUTarget("cuda", 90, 32), True
        compiled[f"{kernel.__name__} {number}"] = triton.compile(source, target=target, options=options)
    return compiled


def test_the_kernels_start_before_the_previous_one_ends_on_hopper(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They load weights or keys into the L2 cache, wait for the previous kernel, and only then read or write anything."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    kernels = compiled_for("sm_90")
    assert len(kernels) == 13
    for name, kernel in kernels.items():
        text = kernel.asm["ptx"]
        before, after = re.split(r"griddepcontrol\.wait ?;", text)
        assert "griddepcontrol.launch_dependents" in after, name
        assert ("prefetch.global.L2" in before) is ("join" not in name), name
        assert not re.search(r"(ld|st|async\.\w+\.shared)\.global", before), name
        assert re.search(r"(ld|async\.\w+\.shared)\.global", after), name
        assert kernel.metadata.shared <= CHIPS["sm_90"], name
        assert kernel.metadata.launch_pdl


@pytest.mark.parametrize("chip", AMD)
def test_the_kernels_compile_for_amd(chip: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Machine code for that chip, no spills, and shared memory within the limit."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    for name, kernel in compiled_for(chip).items():
        text = kernel.asm["amdgcn"]

        assert len(kernel.asm["hsaco"]) > 0
        assert chip in text
        assert field(text, "wavefront_size") == (32 if chip == "gfx1100" else 64), name
        assert field(text, "vgpr_spill_count") == 0, name
        assert kernel.metadata.shared <= CHIPS[chip], name
        if name.startswith(("attention", "split_matmul", "linear_act")):
            assert ("v_wmma" if chip == "gfx1100" else "v_mfma") in text, name


def field(text: str, name: str) -> int:
    found = re.search(rf"\.{name}:\s*(\d+)", text)
    assert found
    return int(found[1])


def test_wide_heads_are_left_to_torch_on_rdna(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operators, "triton_supports", lambda *_: True)
    mask = torch.ones(4, 4, dtype=torch.bool)
    for is_rdna in (False, True):
        monkeypatch.setattr(operators, "gpu", lambda _, rdna=is_rdna: Gpu(32, 96, is_rdna=rdna))
        wide, narrow = torch.ones(1, 1, 4, 128), torch.ones(1, 1, 4, 64)
        assert operators.attention_supports(wide, wide, wide, mask) is not is_rdna
        assert operators.attention_supports(wide, wide, wide)
        widest = torch.ones(1, 1, 4, 256)
        assert operators.attention_supports(widest, widest, widest) is not is_rdna
        assert operators.attention_supports(narrow, narrow, narrow, mask)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("denoiser", [False, True], ids=["small", "denoiser"])
@pytest.mark.parametrize("name", NAMES)
def test_gpu_results_match_the_reference(name: str, dtype: str, denoiser: bool) -> None:  # noqa: FBT001
    """Compared with the reference in float32."""
    kind = getattr(torch, dtype)
    args = arguments(name, device="cuda", dtype=kind, denoiser=denoiser)
    wide = tuple(a.float() if isinstance(a, torch.Tensor) else a for a in args)
    tolerance = {"float32": 1e-4, "bfloat16": 3.2e-2, "float16": 4e-3}[dtype]

    for result, expected in zip(flat(operator(name)(*args)), flat(getattr(references, name)(*wide)), strict=True):
        torch.testing.assert_close(result.float(), expected.float(), rtol=tolerance, atol=tolerance)


@pytest.mark.gpu
@pytest.mark.parametrize("name", NAMES)
def test_gpu_checks_gradients_compile_and_capture(name: str) -> None:
    args = arguments(name, device="cuda", dtype=torch.float32)
    torch.library.opcheck(operator(name), leaves(args))
    compiled = torch.compile(operator(name), fullgraph=True)
    for result, expected in zip(gradients(compiled, args), gradients(getattr(references, name), args), strict=True):
        torch.testing.assert_close(result, expected, rtol=2e-3, atol=2e-3)
    assert audit_op(f"rocsolid::{name}", *args).captured is True
    torch._dynamo.reset()


def test_linear_act_passes_opcheck_and_takes_empty_inputs() -> None:
    operator = torch.ops.rocsolid.linear_act.default
    x, weight, bias = torch.randn(3, 16), torch.randn(10, 16), torch.randn(10)
    for activation, given in (("gelu", bias), ("silu_mul", None)):
        torch.library.opcheck(operator, (x, weight, given, activation))
    torch.testing.assert_close(operator(x, weight, bias, "none"), torch.nn.functional.linear(x, weight, bias))
    assert operator(x[:0], weight, bias, "gelu_tanh_mul").shape == (0, 5)
    torch.testing.assert_close(operator(x[:, :0], weight[:, :0], bias, "none"), bias.expand(3, 10))


def test_linear_act_suits_unless_torch_was_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    from rocsolid.ops.shipped import tiles

    x, weight = torch.ones(20, 64).bfloat16(), torch.ones(48, 64).bfloat16()
    assert not linear_act.suits(x, weight, "gelu"), "on the CPU"
    monkeypatch.setattr(linear_act, "triton_supports", lambda *_: True)
    assert linear_act.suits(x, weight, "gelu")
    assert not linear_act.suits(x.float(), weight.float(), "gelu")
    assert not linear_act.suits(torch.ones(257, 64).bfloat16(), weight, "gelu")
    assert not linear_act.suits(x[:, :60], weight[:, :60], "gelu"), "rows are not read 16 bytes at a time"
    key = tiles.product_key("linear_act gated", 20, 64, 24, torch.bfloat16)
    monkeypatch.setattr(tiles, "known_tile", lambda _, k: tiles.Tile(32, 32, 64, 0, 4, 4) if k == key else None)
    assert linear_act.suits(x, weight, "gelu")
    assert not linear_act.suits(x, weight, "gelu_mul")
