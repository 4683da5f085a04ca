"""Vendor operators: a function that breaks the graph compiles after `rs.vendor_op`; wrong declarations are rejected."""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

pytestmark = pytest.mark.torch
torch: Any = pytest.importorskip("torch")

from tests.ops import vendor_library  # noqa: E402
from tests.ops.vendor_library import norm_reference, scale_in_place  # noqa: E402

from rocsolid.errors import UnknownNameError, UsageError, VendorOpError  # noqa: E402
from rocsolid.observe.breaks import find_breaks  # noqa: E402
from rocsolid.ops.audit_op import audit_op  # noqa: E402
from rocsolid.ops.patch_calls import patch_calls  # noqa: E402
from rocsolid.ops.vendor_op import VendorOp, vendor_op  # noqa: E402

_numbers = itertools.count()
ONE: Any = [1]


def name() -> str:
    return f"testing::op{next(_numbers)}"


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture(scope="module")
def norm() -> VendorOp:
    op: VendorOp = vendor_op(
        "testing::rms_norm",
        vendor_library.rms_norm,
        reference=norm_reference,
        example=(torch.ones(4, 8), torch.ones(8)),
    )
    return op


def no_result(_x: Any, _factor: Any) -> None:
    return None


def three(x: Any) -> Any:
    return x.dim() + 2


def first(x: Any, y: Any) -> Any:
    return x if y is None else x + y


def model(x: Any, weight: Any) -> Any:
    return vendor_library.rms_norm(x * 2, weight).sin().sum()


def gradients(function: Any, x: Any, weight: Any) -> list[Any]:
    inputs = [x.detach().clone().requires_grad_(), weight.detach().clone().requires_grad_()]
    function(*inputs).backward()
    return [i.grad for i in inputs]


def test_a_function_that_breaks_the_graph_compiles_as_a_vendor_op(norm: VendorOp) -> None:
    """Full graph, dynamic shapes, forward and backward."""
    broken = find_breaks(model, (torch.ones(4, 8), torch.ones(8)), backend="eager")
    assert [b.id for b in broken.breaks] == ["GB0098"]

    def plain(x: Any, weight: Any) -> Any:
        return norm_reference(x * 2, weight).sin().sum()

    with patch_calls(vendor_library, {"tests.ops.vendor_library.rms_norm": norm}):
        compiled = torch.compile(model, fullgraph=True, dynamic=True)
        for rows in (4, 6, 9):
            x, weight = torch.randn(rows, 8), torch.randn(8)
            torch.testing.assert_close(compiled(x, weight), plain(x, weight))
            for gradient, expected in zip(gradients(compiled, x, weight), gradients(plain, x, weight), strict=True):
                torch.testing.assert_close(gradient, expected)
        assert find_breaks(model, (torch.ones(4, 8), torch.ones(8)), backend="eager").breaks == ()


@pytest.mark.gpu
def test_a_vendor_op_is_captured_and_replayed(norm: VendorOp) -> None:
    x, weight = torch.randn(4, 8, device="cuda"), torch.randn(8, device="cuda")
    compiled = torch.compile(lambda x, w: norm(x * 2, w).sin(), fullgraph=True)
    with torch.no_grad():
        compiled(x, weight)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = compiled(x, weight)
        x.copy_(torch.randn_like(x))
        graph.replay()
        torch.testing.assert_close(result, norm_reference(x * 2, weight).sin())
    assert audit_op("testing::rms_norm", x, weight, 1e-6).captured is True


def test_an_example_runs_every_check(norm: VendorOp) -> None:
    assert norm.checks is not None
    assert len(norm.checks.passed) == 8
    assert norm.checks.error is not None
    assert norm.checks.error < 1e-6
    assert repr(norm).startswith("<vendor operator testing::rms_norm(Tensor x, Tensor weight, float eps=")
    assert vars(norm)["__name__"] == "rms_norm"


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: x, "returns its argument 'x' (result 0); an operator must return new memory"),
        (lambda x: x.view(-1), "returns a view of its argument 'x'"),
        (lambda x: x.add_(1) * 2, "writes to its argument 'x', which mutates=() does not declare"),
        (lambda x: x * 3, "differs from its reference: the largest error of result 0 is"),
        (
            lambda x: x.t().contiguous().t() * 2,
            "its fake implementation returns another shape, stride or dtype than the function",
        ),
        (
            lambda x: (x * 2).double(),
            "its fake implementation returns another shape, stride or dtype than the function",
        ),
    ],
)
def test_rejects_a_wrong_declaration(function: Any, message: str) -> None:
    with pytest.raises(VendorOpError) as error:
        vendor_op(name(), function, reference=lambda x: x * 2, example=(torch.ones(4, 8),))

    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_rejects_wrong_gradients() -> None:
    with pytest.raises(VendorOpError, match=r"the gradients of .* differ from those of its reference"):
        vendor_op(
            name(),
            lambda x: x.detach() * 2,
            reference=lambda x: x * 2,
            backward=lambda grad, _inputs, _output: (grad * 3,),
            example=(torch.ones(4),),
        )


def test_a_declared_mutation_compiles() -> None:
    op = vendor_op(
        name(),
        scale_in_place,
        mutates=("x",),
        fake=no_result,
        example=(torch.ones(4), 3.0),
    )

    @torch.compile(fullgraph=True, backend="aot_eager")
    def twice(x: Any) -> Any:
        y = x + 1
        op(y, 2.0)
        return y

    assert twice(torch.ones(2)).tolist() == [4, 4]
    with pytest.raises(VendorOpError, match=r"contains y, which is not an argument; the arguments are x, factor"):
        vendor_op(name(), scale_in_place, mutates=("y",), fake=scale_in_place)


def test_custom_backward_with_two_results() -> None:
    def split(x: torch.Tensor, scale: float) -> tuple[torch.Tensor, torch.Tensor]:
        return x.detach() * scale, x.detach() + scale

    def backward(grads: Any, inputs: Any, output: Any) -> Any:
        assert len(output) == 2
        return grads[0] * inputs[1] + grads[1], None

    op = vendor_op(
        name(),
        split,
        reference=lambda x, scale: (x * scale, x + scale),
        backward=backward,
        example=lambda: (torch.randn(3), 2.0),
    )
    x = torch.ones(3, requires_grad=True)
    first, second = torch.compile(op, fullgraph=True, backend="aot_eager")(x, 2.0)
    (first.sum() + second.sum()).backward()

    assert x.grad.tolist() == [3, 3, 3]


def test_decorator_and_autocast() -> None:
    @vendor_op(name(), fake=torch.empty_like, autocast=torch.bfloat16)
    def copied(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert copied(torch.ones(2)).dtype == torch.bfloat16
    assert copied(torch.ones(2)).dtype == torch.float32
    assert copied.checks is None
    assert copied.check(torch.ones(2)).error is None


def test_defaults_and_keywords_work_as_in_the_function() -> None:
    def scaled(x: Any, factor: float = 2.0, *, shift: float = 1.0) -> Any:
        return x * factor + shift

    op = vendor_op(
        name(), scaled, fake=lambda x, *_: torch.empty_like(x), schema="(Tensor x, float factor=5.0) -> Tensor"
    )

    assert op(torch.ones(1)).tolist() == [6]
    assert op(torch.ones(1), factor=3.0).tolist() == [4]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: vendor_op("nocolons", abs, fake=abs), "write an operator name as namespace::name, not 'nocolons'"),
        (lambda: vendor_op("aten::relu", abs, fake=abs), "the operator aten::relu already exists"),
        (lambda: vendor_op(name(), lambda x: x), "the types of x are unknown; annotate the function"),
        (lambda: vendor_op(name(), three), "(Parameter x has unsupported type typing.Any.); annotate the function"),
        (lambda: vendor_op(name(), lambda *a: a[0]), "the function has no signature"),
        (lambda: vendor_op(name(), lambda x: x, schema="(Tensor x) -> Tensor"), "pass fake=... or reference=..."),
        (lambda: vendor_op(name(), lambda x: x, fake=abs, schema="(Tensr x) -> Tensor"), "torch rejects the schema"),
        (
            lambda: vendor_op(name(), lambda x: x, fake=abs, example=ONE),
            "example must be a tuple of arguments",
        ),
        (
            lambda: vendor_op(name(), three, fake=abs, reference=three, example=(torch.ones(1),)),
            "returns int",
        ),
        (lambda: vendor_op(name(), first, fake=abs, example=(torch.ones(1),)), "the example has 1 value"),
        (lambda: vendor_op(name(), lambda x: x, fake=abs, example=({},)), "an operator cannot take x of type dict"),
    ],
)
def test_an_invalid_operator_gets_a_one_line_error(call: Any, message: str) -> None:
    with pytest.raises(VendorOpError) as error:
        call()

    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_audit_reports_what_is_missing() -> None:
    library = torch.library.Library("testvendor", "FRAGMENT")
    library.define("mha(Tensor(a!) q, Tensor(b!) k) -> Tensor")
    library.impl("mha", lambda q, k: q + k, "CPU")
    library.define("count(Tensor x) -> int")
    library.impl("count", lambda x: 3, "CPU")  # noqa: ARG005
    bare, counting = audit_op("testvendor::mha"), audit_op("testvendor::count")
    run = audit_op("testvendor::mha", torch.ones(2), torch.ones(2))

    assert [f.code for f in bare.findings] == ["OPR001", "OPR002", "OPR004"]
    assert (bare.ok, bare.has_fake, bare.writes) == (False, False, ("q", "k"))
    assert "all its tensor arguments" in bare.findings[1].message
    assert "q, k, but it did not change them when it was run" in run.findings[1].message
    assert [f.code for f in counting.findings] == ["OPR001", "OPR003", "OPR004"]
    assert "it returns int to Python" in counting.findings[1].message
    assert str(bare).startswith("testvendor::mha: has problems in compiled or captured code\n")
    del library


def test_audit_of_a_correct_operator(norm: VendorOp) -> None:
    del norm
    audit = audit_op("testing::rms_norm", torch.ones(2, 8), torch.ones(8), 1e-6)

    assert audit.ok
    assert audit.findings == ()
    assert audit.captured is None or audit.captured
    with pytest.raises(UnknownNameError, match="unknown operator 'testing::rms_nrm'; did you mean 'testing::rms_norm'"):
        audit_op("testing::rms_nrm")
    with pytest.raises(UnknownNameError, match="unknown operator 'relu'"):
        audit_op("relu")


def test_patch_calls_replaces_every_binding_and_restores_it(tmp_path: Any, monkeypatch: Any) -> None:
    import importlib

    package = tmp_path / "servelib"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "kernels.py").write_text("def attention(x):\n    return 'plain'\n")
    (package / "early.py").write_text(
        "from servelib.kernels import attention as attn\n\ndef run(x):\n    return attn(x)\n"
    )
    (package / "late.py").write_text("from servelib.kernels import attention\n\ndef run(x):\n    return attention(x)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    early: Any = importlib.import_module("servelib.early")

    with patch_calls("servelib", {"servelib.kernels.attention": lambda _x: "patched"}) as places:
        late: Any = importlib.import_module("servelib.late")
        assert (early.run(1), late.run(1)) == ("patched", "patched")
    assert set(places) == {"servelib.kernels.attention", "servelib.early.attn"}
    assert (early.run(1), late.run(1)) == ("plain", "plain")
    with pytest.raises(KeyError), patch_calls("servelib", {"servelib.kernels.attention": lambda _x: "patched"}):  # noqa: PT012
        assert early.run(1) == "patched"
        raise KeyError
    assert early.run(1) == "plain"


def test_patch_calls_names_a_missing_function() -> None:
    with (
        pytest.raises(UnknownNameError, match=r"'math.sqr'; did you mean 'math.sqrt'"),
        patch_calls("json", {"math.sqr": abs}),
    ):
        pass
    with (
        pytest.raises(UsageError, match="module 'no_such_vendor' is not installed"),
        patch_calls("json", {"no_such_vendor.f": abs}),
    ):
        pass
    with pytest.raises(UsageError, match="takes a module or its name, not int"), patch_calls(3, {}):  # type: ignore[arg-type]
        pass
