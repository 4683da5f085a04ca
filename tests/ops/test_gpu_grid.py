"""On a GPU: every kernel over a grid of shapes, layouts, masks and dtypes. The error to float64 is at most 1.5 times that of eager torch.

tests/ops/interpreted.py runs the same kernels on the CPU, with fewer shapes.
"""

import itertools
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.gpu]
torch: Any = pytest.importorskip("torch")
pytest.importorskip("triton")
functional = torch.nn.functional

from rocsolid.ops.linear_act import LINEAR_ACT, reference  # noqa: E402
from rocsolid.ops.shipped import launch, references, tiles  # noqa: E402
from rocsolid.ops.shipped.device import Gpu, gpu  # noqa: E402
from rocsolid.ops.shipped.operators import ATTENTION  # noqa: E402
from rocsolid.ops.shipped.tiles import Tile  # noqa: E402
from rocsolid.ops.split_matmul import SPLIT_MATMUL  # noqa: E402

DTYPES = ["bfloat16", "float16"]
ACTIVATIONS = ["none", "gelu", "gelu_tanh", "silu", "silu_mul", "gelu_mul", "gelu_tanh_mul"]


@pytest.fixture(autouse=True)
def seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    tiles.known_tile.cache_clear()
    torch.manual_seed(0)


def random(*shape: int, dtype: Any = torch.bfloat16) -> Any:
    return torch.randn(*shape, device="cuda").to(dtype)


def as_accurate_as_eager(result: Any, eager: Any, exact: Any) -> None:
    """Compare the norms of the errors. Rounding the exact result is the least that any kernel does."""
    assert result.dtype == eager.dtype
    assert result.isfinite().all()
    scale = exact.norm().clamp_min(1e-30)
    error, of_eager, rounding = (
        float((r.double() - exact).norm() / scale) for r in (result, eager, exact.to(eager.dtype))
    )
    assert error <= 1.5 * max(of_eager, rounding), (error, of_eager)


# Batch, heads, heads of keys, queries, keys, width: of BERT, GPT-2, ViT, Llama, the denoiser; one query; nothing a multiple of a block.
ATTENTIONS = [
    (1, 12, 12, 128, 128, 64),
    (1, 12, 12, 197, 197, 64),
    (1, 16, 4, 32, 32, 64),
    (1, 8, 8, 50, 850, 128),
    (2, 4, 1, 1, 700, 64),
    (3, 2, 2, 5, 77, 32),
    (1, 2, 2, 1, 1, 16),
    (1, 2, 1, 33, 300, 256),
]


@pytest.mark.parametrize(
    ("sizes", "dtype"),
    [*((sizes, "bfloat16") for sizes in ATTENTIONS), *((sizes, "float16") for sizes in ATTENTIONS[-3:])],
)
def test_attention(sizes: tuple[int, ...], dtype: str) -> None:
    """Without a mask and causal; the heads of a token are next to each other in memory, as in a model."""
    batch, heads, kv_heads, queries, keys, width = sizes
    kind = getattr(torch, dtype)
    q = random(batch, queries, heads, width, dtype=kind).transpose(1, 2)
    k, v = (random(batch, keys, kv_heads, width, dtype=kind).transpose(1, 2) for _ in range(2))
    for causal in (False, True):
        exact = references.attention(q.double(), k.double(), v.double(), None, causal).double()
        eager = functional.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)
        as_accurate_as_eager(ATTENTION(q, k, v, None, causal), eager, exact)


def masks(batch: int, heads: int, queries: int, keys: int) -> dict[str, Any]:
    visible = torch.rand(batch, 1, queries, keys, device="cuda") > 0.3
    visible[..., 0] = True  # eager returns NaN for a query that sees nothing
    padding = (torch.arange(keys, device="cuda") < keys - 7)[None, None, None].expand(batch, 1, queries, keys)
    infinite = torch.zeros(visible.shape, device="cuda").masked_fill(~visible, float("-inf"))
    lowest = torch.zeros(visible.shape, device="cuda").masked_fill(~visible, torch.finfo(torch.float32).min)
    return {
        "boolean": visible,
        "padding": padding,
        "of one row": padding[:, :, :1],
        "of one column": torch.randn(1, 1, queries, 1, device="cuda").bfloat16(),
        "added": random(1, heads, queries, keys),
        "infinite": infinite.bfloat16(),
        "lowest": lowest,
        "strided": torch.randn(keys, 2 * queries, 1, 1, device="cuda").permute(3, 2, 1, 0)[:, :, ::2].bfloat16(),
    }


MASKS = ["boolean", "padding", "of one row", "of one column", "added", "infinite", "lowest", "strided"]


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("sizes", [(2, 12, 128, 128, 64), (1, 2, 50, 850, 128), (2, 2, 5, 77, 32)], ids=str)
def test_masked_attention_to_keys_in_two_tensors(sizes: tuple[int, ...], name: str) -> None:
    batch, heads, queries, keys, width = sizes
    mask = masks(batch, heads, queries, keys)[name]
    q, k, v = (random(batch, heads, count, width) for count in (queries, keys, keys))
    exact = references.attention(q.double(), k.double(), v.double(), 0.2, False, mask).double()
    eager = references.attention(q, k, v, 0.2, False, mask)
    as_accurate_as_eager(ATTENTION(q, k, v, 0.2, False, mask), eager, exact)
    first = keys - 9
    earlier, later = (k[:, :, :first], v[:, :, :first].contiguous()), (k[:, :, first:], v[:, :, first:])
    as_accurate_as_eager(ATTENTION(q, *earlier, 0.2, False, mask, *later), eager, exact)


def test_attention_with_every_tile() -> None:
    """Also the tiles that the estimate does not choose, which a table may contain."""
    q, k, v = random(1, 4, 50, 64), random(1, 4, 600, 64), random(1, 4, 600, 64)
    exact = references.attention(q.double(), k.double(), v.double()).double()
    eager = references.attention(q, k, v)
    for rows, columns, (splits, warps) in itertools.product((16, 32, 64), (32, 64, 128), ((1, 4), (5, 8))):
        tile = Tile(rows, columns, 0, splits, warps, 2)
        as_accurate_as_eager(launch.launch_attention(q, k, v, None, causal=False, tile=tile), eager, exact)


def test_empty_inputs() -> None:
    q, k = random(1, 2, 0, 16), random(1, 2, 3, 16)
    assert ATTENTION(q, k, k).shape == (1, 2, 0, 16)
    nothing = random(1, 2, 0, 16)
    assert not ATTENTION(k, nothing, nothing, None, False, torch.ones(3, 0, dtype=torch.bool, device="cuda")).any()
    assert SPLIT_MATMUL(random(0, 32), random(32, 8), 2).shape == (2, 0, 8)
    assert LINEAR_ACT(random(0, 32), random(8, 32), None, "gelu").shape == (0, 8)
    bias = random(8)
    torch.testing.assert_close(LINEAR_ACT(random(3, 0), random(8, 0), bias, "none"), bias.expand(3, 8))


# Rows, inner dimension, columns: of the models; one row; nothing a multiple of a block.
PRODUCTS = [(128, 768, 768), (197, 3072, 768), (32, 2816, 1024), (50, 4096, 1024), (1, 1024, 512), (7, 300, 33)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sizes", PRODUCTS, ids=str)
def test_products_in_parts(sizes: tuple[int, int, int], dtype: str) -> None:
    rows, inner, columns = sizes
    a = random(rows, inner, dtype=getattr(torch, dtype))
    b = random(inner, columns, dtype=a.dtype) * inner**-0.5
    for right, splits in itertools.product((b, b.t().contiguous().t()), (1, 3, 8)):
        parts = SPLIT_MATMUL(a, right, splits)
        assert parts.shape == (splits, rows, columns)
        as_accurate_as_eager(parts.sum(0).to(a.dtype), a @ b, a.double() @ b.double())


def eager_linear_act(x: Any, weight: Any, bias: Any, activation: str) -> Any:
    names = {"gelu_tanh": "gelu"}
    name = activation.removesuffix("_mul")
    options = {"approximate": "tanh"} if name == "gelu_tanh" else {}
    result = functional.linear(x, weight, bias)
    gate, up = result.chunk(2, 1) if activation.endswith("_mul") else (result, None)
    gate = gate if name == "none" else getattr(functional, names.get(name, name))(gate, **options)
    return gate if up is None else gate * up


def exact_linear_act(x: Any, weight: Any, bias: Any, activation: str) -> Any:
    return eager_linear_act(x.double(), weight.double(), None if bias is None else bias.double(), activation)


def linear_inputs(sizes: tuple[int, int, int], dtype: str, activation: str) -> tuple[Any, Any, Any]:
    rows, inner, columns = sizes
    kind, wide = getattr(torch, dtype), columns * (2 if activation.endswith("_mul") else 1)
    return random(rows, inner, dtype=kind), random(wide, inner, dtype=kind) * inner**-0.5, random(wide, dtype=kind)


@pytest.mark.parametrize(
    ("activation", "sizes", "dtype"),
    [
        *itertools.product(ACTIVATIONS, [(128, 768, 3072), (7, 300, 33)], ["bfloat16"]),
        ("gelu_mul", (7, 300, 33), "float16"),
    ],
)
def test_linear_layers_with_activation(activation: str, sizes: tuple[int, int, int], dtype: str) -> None:
    given = linear_inputs(sizes, dtype, activation)
    result = LINEAR_ACT(*given, activation)
    as_accurate_as_eager(result, eager_linear_act(*given, activation), exact_linear_act(*given, activation))


@pytest.mark.parametrize("sizes", [(1, 1024, 512), (32, 1024, 1536), (197, 768, 2304)], ids=str)
@pytest.mark.parametrize("activation", ["gelu", "silu_mul"])
def test_linear_layers_in_all_layouts(activation: str, sizes: tuple[int, int, int]) -> None:
    """Weights of either layout, rows of a wider matrix, with and without bias."""
    x, weight, bias = linear_inputs(sizes, "bfloat16", activation)
    wide = torch.cat([x, x], 1)[:, : sizes[1]]
    columns = weight.t().contiguous().t()
    for some_x, some_weight, some_bias in (
        (wide, weight, None),
        (x, columns, bias),
        (x.t().contiguous().t(), columns, None),
    ):
        given = (some_x, some_weight, some_bias)
        exact = exact_linear_act(*given, activation)
        as_accurate_as_eager(LINEAR_ACT(*given, activation), eager_linear_act(*given, activation), exact)


@pytest.mark.parametrize("gated", [False, True])
def test_products_with_every_tile(gated: bool) -> None:  # noqa: FBT001
    activation = "silu_mul" if gated else "gelu"
    given = linear_inputs((100, 512, 192), "bfloat16", activation)
    eager, exact = eager_linear_act(*given, activation), exact_linear_act(*given, activation)
    for rows, columns in itertools.product((16, 32, 64, 128), (16, 32, 64, 128)):
        warps = 8 if rows * columns >= 64 * 64 else 4
        result = launch.launch_linear_act(*given, activation, tile=Tile(rows, columns, 64, 1, warps, 3))
        as_accurate_as_eager(result, eager, exact)


def test_a_kernel_waits_for_the_previous_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chain of kernels that each read what the previous one wrote, in a graph: the same bits as without overlap."""
    weights = [random(768, 768) * 768**-0.5 for _ in range(8)]
    start = random(128, 768)

    def chain() -> Any:
        x = start
        for weight in weights * 4:
            x = LINEAR_ACT(x.clone(), weight, None, "gelu") + x.roll(1, 0)  # after a copy, which is no kernel
            heads = LINEAR_ACT(x, weight, None, "none").view(1, 128, 12, 64).transpose(1, 2)
            x = x + ATTENTION(heads, heads, heads).transpose(1, 2).reshape(128, 768)
            x = SPLIT_MATMUL(x, weight, 4).sum(0).to(x.dtype).tanh()
            x = launch.launch_attention(  # in two kernels
                x.view(1, 1, 128, 768)[..., :128], x.view(1, 1, 768, 128), x.view(1, 1, 768, 128), None, causal=False, splits=4
            ).reshape(128, 128).repeat(1, 6)  # fmt: skip
        return x

    def replayed() -> list[Any]:
        chain()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = chain()
        found = []
        for _ in range(20):
            graph.replay()
            found.append(result.clone())
        torch.cuda.synchronize()
        return found

    overlapping = replayed()
    original = gpu

    def without_pdl(device: Any) -> Gpu:
        return original(device)._replace(has_pdl=False)

    monkeypatch.setattr(launch, "gpu", without_pdl)
    expected = chain()
    assert expected.isfinite().all()
    assert all(torch.equal(result, expected) for result in overlapping)


def test_tuning_keeps_the_fastest_tile_of_a_shape() -> None:
    x, weight, bias = linear_inputs((40, 512, 640), "bfloat16", "gelu")
    key = tiles.product_key("linear_act", 40, 512, 640, x.dtype)
    chip = gpu(x.device)
    with tiles.tuning(30):
        result = LINEAR_ACT(x, weight, bias, "gelu")
    tuned = tiles.known_tile(chip.name, key)
    assert tuned in tiles.product_tiles(40, 512, 640, chip, 1)
    torch.testing.assert_close(result, reference(x, weight, bias, "gelu"), rtol=2e-2, atol=2e-2)
