"""State that is easy to overlook: behind caches, in dictionary keys, in code that only torch calls, written through `.data`."""

import copy
import dataclasses
import enum
import functools
import sys
import types
from collections.abc import Callable
from typing import Annotated, Any, Generic, Optional, TypeVar

import pytest

pytest.importorskip("torch")
import torch
from torch import nn

import rocsolid as rs

pytestmark = pytest.mark.torch
T = TypeVar("T")


class Box:
    """A plain object."""

    def __init__(self, **values: Any) -> None:
        vars(self).update(values)


def test_an_object_in_an_lru_cache(target: Any) -> None:
    @functools.lru_cache
    def config() -> Any:
        return Box(scale=2.0)

    g, x = target.capture(lambda x: x * config().scale), target.randn(3)
    for scale in (2.0, 3.0, 4.0):
        config().scale = scale
        assert torch.equal(g(x), x * scale)
        assert torch.equal(g(x), x * scale)
    config.cache_clear()
    assert torch.equal(g(x), x * 2)


def test_a_module_that_is_a_dictionary_key(target: Any) -> None:
    layer = target.module(nn.Linear(4, 4))
    weights = {layer: 2.0}

    def run(x: Any) -> Any:
        for module, weight in weights.items():
            x = module(x) * weight
        return x

    g, x = target.capture(run), target.randn(2, 4)
    g(x)
    g(x)
    layer.weight = nn.Parameter(target.randn(4, 4))
    assert torch.allclose(g(x), run(x))


GAIN = 2.0


class WeightProperty(nn.Linear):  # type: ignore[misc]
    """Torch's own `forward` reads the property."""

    def __init__(self) -> None:
        nn.Module.__init__(self)
        self.base = nn.Parameter(torch.ones(4, 4))
        self.bias = None

    @property
    def weight(self) -> Any:
        return self.base * GAIN


def test_a_property_that_torch_reads(target: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model = target.module(WeightProperty())
    g, x = target.capture(model), target.randn(2, 4)
    g(x)
    g(x)
    monkeypatch.setitem(globals(), "GAIN", 5.0)
    assert torch.equal(g(x), model(x))


def test_gradients_that_torch_clips(target: Any) -> None:
    mine, twin = target.module(nn.Linear(4, 4)), target.module(nn.Linear(4, 4))
    g = target.capture(lambda _: nn.utils.clip_grad_norm_(mine.parameters(), 1.0))
    for value in (1.0, 2.0, 3.0):
        for model in (mine, twin):
            for parameter in model.parameters():
                parameter.grad = torch.full_like(parameter, value)
        assert torch.allclose(g(target.randn(1)), nn.utils.clip_grad_norm_(twin.parameters(), 1.0))
        assert torch.allclose(mine.weight.grad, twin.weight.grad)


def test_a_weight_that_is_written_through_data(target: Any) -> None:
    mine, twin = (target.module(nn.Linear(4, 4)) for _ in range(2))
    twin.load_state_dict(mine.state_dict())

    def decay(model: Any, x: Any) -> Any:
        model.weight.data.mul_(0.5)
        return model(x)

    g, x = target.capture(functools.partial(decay, mine)), target.randn(2, 4)
    for _ in range(4):
        assert torch.allclose(g(x), decay(twin, x))
        assert torch.equal(mine.weight, twin.weight)


def test_an_argument_that_is_written_through_data(target: Any) -> None:
    def grow(x: Any) -> Any:
        x.data.add_(1)
        return x * 2

    g, mine, twin = target.capture(grow), target.randn(3), None
    twin = mine.clone()
    for _ in range(4):
        assert torch.equal(g(mine), grow(twin))
        assert torch.equal(mine, twin)


@pytest.mark.parametrize(
    "change", [lambda b: b.unsqueeze_(0), lambda b: b.t_(), lambda b: setattr(b, "data", b.data * 2)]
)
def test_a_tensor_that_the_function_reshapes(target: Any, change: Any) -> None:
    buffer = torch.ones(2, 3, device=target.device)
    twin = buffer.clone()

    def run(x: Any) -> Any:
        change(buffer)
        return x * 2

    g = target.capture(run)
    for _ in range(3):
        g(target.randn(3))
        change(twin)
        assert buffer.shape == twin.shape
        assert torch.equal(buffer, twin)


def test_an_argument_that_the_function_reshapes(target: Any) -> None:
    g = target.capture(lambda x: x.unsqueeze_(0) * 2)
    for _ in range(3):
        x = target.randn(3)
        assert g(x).shape == x.shape == (1, 3)


class Base(nn.Module):  # type: ignore[misc]
    """Its captured method is overridden."""

    @rs.capture(backend="record")
    def forward(self, x: Any) -> Any:
        return x * self.scale if hasattr(self, "scale") else x * 2


class Override(Base):
    """Calls the captured method of its base class."""

    def forward(self, x: Any) -> Any:
        return super().forward(x) + 1


def test_a_captured_method_does_not_hide_its_override() -> None:
    model, x = Override(), torch.randn(3)
    for _ in range(3):
        assert torch.equal(model(x), x * 2 + 1)
    assert "forward" not in vars(model)


def test_a_copy_of_an_object_has_its_own_captured_method() -> None:
    one, x = Base(), torch.randn(3)
    one.scale = 2.0
    one(x)
    other = copy.copy(one)
    other.scale = 5.0
    assert torch.equal(other(x), x * 5)
    assert torch.equal(one(x), x * 2)


def test_a_second_backward_through_a_captured_step_raises(target: Any) -> None:
    model = target.module(nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1)))
    with torch.enable_grad():
        g = target.capture(model, backward=True)
        for _ in range(2):
            x = target.randn(1, 4).requires_grad_()
            y = g(x).sum()
            if g.report().replays:
                with pytest.raises(rs.CaptureError, match="create_graph=True"):
                    torch.autograd.grad(y, x, create_graph=True)


def test_views_and_sets_in_a_result_are_new_objects(target: Any) -> None:
    buffer = torch.arange(6.0, device=target.device)
    g, x = target.capture(lambda x: (x * 2, buffer[:3], {1}, x.view(-1))), target.randn(3)
    for _ in range(3):
        _, view, numbers, whole = g(x)
        assert (view.shape, numbers, whole.shape) == ((3,), {1}, (3,))
        assert whole is not x
        view.unsqueeze_(0)
        whole.unsqueeze_(0)
        numbers.add(9)
    assert x.shape == (3,)


def test_an_enum_as_a_dictionary_key(target: Any) -> None:
    class Colour(enum.Enum):
        RED = 1

    g = target.capture(lambda d: d[Colour.RED] * 2)
    for _ in range(3):
        x = target.randn(3)
        assert torch.equal(g({Colour.RED: x}), x * 2)
    assert g.report().replays == 2


def test_an_attribute_that_is_not_a_field_of_a_dataclass(target: Any) -> None:
    @dataclasses.dataclass
    class Batch:
        x: Any

    g, x = target.capture(lambda b: b.x * getattr(b, "scale", 1.0)), target.randn(3)
    g(Batch(x))
    g(Batch(x))
    scaled: Any = Batch(x)
    scaled.scale = 3.0
    assert torch.equal(g(scaled), x * 3)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.arange(10.0, device=x.device)[(x * 9).long()],
        lambda x: nn.functional.binary_cross_entropy(x, torch.ones_like(x)),
        lambda x: torch.linalg.cholesky(torch.eye(4, device=x.device) * x.sum()),
    ],
)
def test_values_that_the_function_does_not_allow_are_not_tried(target: Any, function: Any) -> None:
    g, x = target.capture(function), torch.linspace(0.1, 1, 4, device=target.device)
    for _ in range(3):
        assert torch.allclose(g(x), function(x))


def test_a_function_that_can_run_only_once_runs_once(target: Any) -> None:
    state: Any = Box(done=False)

    def once(x: Any) -> Any:
        if state.done:
            msg = "already done"
            raise RuntimeError(msg)
        state.done = True
        return x * 2

    g, x = target.capture(once), target.randn(3)
    assert torch.equal(g(x), x * 2)
    assert "raised RuntimeError: already done" in g.report().refusals[0].message
    with pytest.raises(RuntimeError, match="already done"):
        g(x)


@pytest.mark.parametrize("length", [8, 7])
def test_padding_is_checked_also_if_the_first_call_needs_none(target: Any, length: int) -> None:
    bucket = {"x": rs.Bucket(dim=1, sizes=[8])}
    g = target.capture(lambda x: x - x.mean(1, keepdim=True), buckets=bucket)
    for size in (length, 7, 6):
        x = target.randn(2, size)
        assert torch.allclose(g(x), x - x.mean(1, keepdim=True), atol=1e-6)


def test_padding_that_changes_state_is_refused(target: Any) -> None:
    total = torch.zeros((), device=target.device)

    def count(x: Any) -> Any:
        total.add_(x.shape[1])
        return x * 2

    g = target.capture(count, buckets={"x": rs.Bucket(dim=1, sizes=[8])})
    for size in (5, 6, 7):
        g(target.randn(2, size))
    assert float(total) == 18


@pytest.mark.parametrize("function", [lambda x: x[:, ::2] * 2, lambda x: x[:, :6] * 2])
def test_a_length_that_fits_two_points_by_chance(target: Any, function: Any) -> None:
    g = target.capture(function, buckets={"x": rs.Bucket(dim=1, sizes=[8])})
    for size in (7, 6, 5, 3):
        x = target.randn(2, size)
        assert torch.equal(g(x), function(x))


def test_static_inputs_in_the_wrong_place(target: Any) -> None:
    g = target.capture(lambda a, b: a - 2 * b)
    a, b = g.inputs(target.randn(3), target.randn(3))
    a.fill_(1.0)
    b.fill_(5.0)
    assert g(b, a).tolist() == [3.0, 3.0, 3.0]


def test_a_lazy_module(target: Any) -> None:
    g, x = target.capture(target.module(nn.LazyLinear(4))), target.randn(2, 3)
    first = g(x)
    assert torch.equal(g(x), first)


def test_a_module_that_is_captured_twice(target: Any) -> None:
    model = target.module(nn.Linear(4, 4))
    g = target.capture(target.capture(model))
    assert isinstance(g, nn.Linear)
    x = target.randn(2, 4)
    for _ in range(3):
        assert torch.equal(g(x), model(x))
    assert isinstance(type(g)(4, 4), nn.Linear)


class Double:
    """Has a factor."""

    factor = 2.0


class Triple:
    """Has another factor."""

    factor = 3.0


def test_a_replaced_dict_of_an_object(target: Any) -> None:
    box: Any = Box(scale=2.0)
    g, x = target.capture(lambda x: x * box.scale), target.randn(3)
    g(x)
    g(x)
    box.__dict__ = {"scale": 3.0}
    assert torch.equal(g(x), x * 3)


def test_replaced_bases_of_a_class(target: Any) -> None:
    class Factor(Double):
        pass

    factor = Factor()
    g, x = target.capture(lambda x: x * factor.factor), target.randn(3)
    g(x)
    g(x)
    Factor.__bases__ = (Triple,)
    assert torch.equal(g(x), x * 3)


def test_an_attribute_of_the_captured_function_itself(target: Any) -> None:
    def run(x: Any) -> Any:
        return x * captured.scale

    captured, x = target.capture(run), target.randn(3)
    for scale in (2.0, 3.0, 4.0):
        captured.scale = scale
        assert torch.equal(captured(x), x * scale)
        assert torch.equal(captured(x), x * scale)


def test_a_module_of_the_same_package_imported_inside_the_function(
    target: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "imported_inside" / "inner"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "near.py").write_text("NEAR = 2.0\n")
    (package.parent / "far.py").write_text("FAR = 1.0\n")
    (package / "user.py").write_text(
        "def run(x):\n    from . import near\n    from ..far import FAR\n    return x * near.NEAR * FAR\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    from imported_inside import far  # type: ignore[import-not-found]
    from imported_inside.inner import near, user  # type: ignore[import-not-found]

    g, x = target.capture(user.run), target.randn(3)
    g(x)
    g(x)
    near.NEAR = 3.0
    assert torch.equal(g(x), x * 3)
    g(x)
    far.FAR = 2.0
    assert torch.equal(g(x), x * 6)


class Number(float):
    """A float that has attributes."""

    scale: float


class Setting(property):
    """A property that has attributes."""

    scale = 2.0


class WithSetting:
    """Has a property with attributes."""

    @Setting
    def scale(self) -> float:
        """The attribute of the property itself."""
        return vars(type(self))["scale"].scale  # type: ignore[no-any-return]


def test_an_attribute_of_a_number(target: Any) -> None:
    box: Any = Box(number=Number(1.0))
    box.number.scale = 2.0
    g, x = target.capture(lambda x: x * box.number.scale), target.randn(3)
    g(x)
    g(x)
    box.number.scale = 3.0
    assert torch.equal(g(x), x * 3)


def test_an_attribute_of_a_property(target: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    box = WithSetting()
    g, x = target.capture(lambda x: x * box.scale), target.randn(3)
    g(x)
    g(x)
    monkeypatch.setattr(vars(WithSetting)["scale"], "scale", 3.0, raising=False)
    assert torch.equal(g(x), x * 3)


class SlotModule(nn.Module):  # type: ignore[misc]
    """A module with an attribute outside of its `__dict__`."""

    __slots__ = ("scale",)

    def __init__(self) -> None:
        super().__init__()
        self.scale = 2.0

    def forward(self, x: Any) -> Any:
        """Scale."""
        return x * self.scale


def test_a_module_with_slots(target: Any) -> None:
    module = SlotModule()
    g, x = target.capture(module), target.randn(3)
    g(x)
    g(x)
    module.scale = 3.0
    assert torch.equal(g(x), x * 3)
    g.scale = 4.0
    assert torch.equal(g(x), x * 4)
    assert module.scale == 4.0


def test_a_method_of_an_object_without_weak_references() -> None:
    class Slots:
        __slots__ = ("scale",)

        @rs.capture
        def run(self, x: Any) -> Any:
            return x * 2

    with pytest.raises(rs.errors.CaptureError, match="__weakref__"):
        Slots().run(torch.ones(2))


class Twice(nn.Module):  # type: ignore[misc]
    """A parametrization."""

    def forward(self, weight: Any) -> Any:
        """Scale the weight."""
        return weight * 2


def test_cached_parametrizations(target: Any) -> None:
    layer = target.module(nn.Linear(4, 4))
    nn.utils.parametrize.register_parametrization(layer, "weight", Twice())
    g, x = target.capture(layer), target.randn(2, 4)
    with torch.no_grad():
        with nn.utils.parametrize.cached():
            g(x)
            g(x)
        layer.parametrizations.weight.original.fill_(3.0)
        assert torch.allclose(g(x), layer(x))
        g(x)
        with nn.utils.parametrize.cached():
            assert torch.allclose(g(x), layer(x))


def test_a_captured_module_that_is_parametrized_afterwards(target: Any) -> None:
    layer, x = target.module(nn.Linear(4, 4)), target.randn(2, 4)
    g = target.capture(layer)
    weight = layer.weight.detach().clone()
    with torch.no_grad():
        for factor, change in ((1, None), (2, "register"), (1, "remove")):
            if change == "register":
                nn.utils.parametrize.register_parametrization(g, "weight", Twice())
            elif change == "remove":
                nn.utils.parametrize.remove_parametrizations(g, "weight", leave_parametrized=False)
            for _ in range(3):
                assert torch.allclose(g(x), nn.functional.linear(x, weight * factor, layer.bias))
            assert torch.allclose(g.weight, weight * factor)
            assert torch.allclose(layer.weight, weight * factor)
    assert type(layer) is nn.Linear
    assert isinstance(g, nn.Linear)
    assert g.report().replays >= 3


def test_a_flag_of_torch_that_the_function_reads(target: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    g, x = target.capture(lambda x: x * (2.0 if torch.backends.cudnn.benchmark else 3.0)), target.randn(3)
    for flag in (False, True, False):
        monkeypatch.setattr(torch.backends.cudnn, "benchmark", flag)
        assert torch.equal(g(x), x * (2.0 if flag else 3.0))
        g(x)


@pytest.mark.parametrize(
    ("change", "read", "restore"),
    [
        (lambda: torch.set_grad_enabled(True), torch.is_grad_enabled, lambda: torch.set_grad_enabled(False)),
        (
            lambda: torch.set_default_dtype(torch.float64),
            torch.get_default_dtype,
            lambda: torch.set_default_dtype(torch.float32),
        ),
    ],
)
def test_a_function_that_changes_the_state_of_torch(target: Any, change: Any, read: Any, restore: Any) -> None:
    def run(x: Any) -> Any:
        change()
        return x * 2

    g, x = target.capture(run), target.randn(3)
    try:
        with torch.no_grad():
            change()
            expected = read()
            for _ in range(3):
                restore()
                g(x)
                assert read() == expected
    finally:
        torch.set_default_dtype(torch.float32)
    assert "changes torch's state" in str(g.report())


@dataclasses.dataclass
class Partly:
    """A dataclass with a field that is set later."""

    data: Any
    later: float = dataclasses.field(init=False)


def test_a_field_that_is_not_set_yet(target: Any) -> None:
    g, x = target.capture(lambda batch: batch.data * getattr(batch, "later", 2.0)), target.randn(3)
    g(Partly(x))
    assert torch.equal(g(Partly(x)), x * 2)
    batch = Partly(x)
    batch.later = 3.0
    assert torch.equal(g(batch), x * 3)
    assert torch.equal(g(batch), x * 3)


class NoRepr(str):
    """A string that cannot be printed."""

    __slots__ = ()

    def __repr__(self) -> str:
        raise ValueError


@pytest.mark.parametrize(
    ("first", "second"), [(10**6000, 10**6000 + 1), (NoRepr("a"), NoRepr("b"))], ids=["huge", "no repr"]
)
def test_a_constant_that_cannot_be_printed(target: Any, first: Any, second: Any) -> None:
    g, x = target.capture(lambda x, value: x * (2.0 if value == first else 3.0)), target.randn(3)
    for value, factor in ((first, 2.0), (first, 2.0), (second, 3.0), (second, 3.0), (first, 2.0)):
        assert torch.equal(g(x, value), x * factor)


def test_warm_and_inputs_name_an_argument_that_cannot_be_captured(target: Any) -> None:
    g, x = target.capture(lambda x, thing: x * len(str(thing))), target.randn(3)
    with pytest.raises(rs.errors.CaptureError, match="argument `thing`"):
        g.warm([((x, object()), {})])
    with pytest.raises(rs.errors.CaptureError, match="argument `thing`"):
        g.inputs(x, object())


def test_padding_after_writing_into_a_longer_part_of_the_buffer(target: Any) -> None:
    def run(x: Any) -> Any:
        return x * 0 + x.sum()

    g = target.capture(run, buckets={"x": rs.Bucket(0, (16,))})
    short, long = target.randn(5), target.randn(10)
    g(short)
    g(short)
    (part,) = g.inputs(long)
    for _ in range(2):
        part.copy_(long)
        assert torch.allclose(g(short), run(short))
    part.copy_(long)
    assert torch.allclose(g(part), run(long))


def test_a_masked_array(target: Any) -> None:
    np = pytest.importorskip("numpy")
    box: Any = Box(constant=np.ma.masked, array=np.ma.array([2.0, 5.0], mask=[False, True]))

    def run(x: Any) -> Any:
        return x * float(box.array.sum()) * (1.0 if box.constant is np.ma.masked else 0.0)

    g, x = target.capture(run), target.randn(3)
    for mask, total in (([False, True], 2.0), ([False, False], 7.0)):
        box.array.mask = mask
        assert torch.equal(g(x), x * total)
        assert torch.equal(g(x), x * total)
    assert g.report().replays


Rows: Any = dict[str, list[int] | Callable[[int], str]]


def test_names_of_types_are_not_taken_for_state(target: Any) -> None:
    def double(x: Any) -> Any:
        return x * 2 if Rows is not None and Rows.__args__ else x

    captured = target.capture(double)
    for factor in (1, 2, 3):
        x = target.randn(4) * factor
        assert torch.equal(captured(x), x * 2)

    assert captured.report().replays == 2
    assert not captured.report().refusals


def test_attributes_that_nobody_can_set_are_not_restored(target: Any) -> None:
    class Alias(types.GenericAlias):
        """A class with read-only members, as extensions have them."""

    alias = Alias(list, (int,))
    seen = []

    def double(x: Any) -> Any:
        seen.append(alias.__args__)
        return x * 2

    captured = target.capture(double)
    x = target.randn(4)

    assert torch.equal(captured(x), x * 2)  # refused, because it appends to a list; and no error
    assert len(seen) == 1
    assert captured.report().refusals


class Scaled(Generic[T]):
    """Made by calling `Scaled[int]`."""

    factor = 2.0


Made: Any = Scaled[int]
Listed: Any = list[Scaled]  # type: ignore[type-arg]
Either: Any = Scaled | None
Maybe: Any = Optional[Scaled]  # noqa: UP045
Noted: Any = Annotated[Scaled, "a note"]


@pytest.mark.parametrize(
    "run",
    [
        lambda x: x * Made().factor,
        lambda x: x * Listed.__args__[0].factor,
        lambda x: x * Either.__args__[0].factor,
        lambda x: x * Maybe.__args__[0].factor,
        lambda x: x * Noted.__origin__.factor,
    ],
    ids=["generic", "list", "union", "Optional", "Annotated"],
)
def test_a_class_behind_the_name_of_a_type(target: Any, run: Any) -> None:
    captured, x = target.capture(run), target.randn(3)
    try:
        for factor in (2.0, 3.0, 4.0):
            Scaled.factor = factor
            for _ in range(2):
                assert torch.equal(captured(x), x * factor)
    finally:
        Scaled.factor = 2.0


def test_the_loader_of_a_module_is_not_visited(target: Any) -> None:
    """Under pytest it reaches the whole session, with generators whose position cannot be read."""
    captured = target.capture(lambda x: x * 2 if __loader__ and __spec__ is not None else x)  # type: ignore[name-defined]
    x = target.randn(3)
    for _ in range(2):
        assert torch.equal(captured(x), x * 2)
    assert captured.report().replays == 1


def test_a_function_that_names_the_tool_that_runs_it(target: Any) -> None:
    captured = target.capture(lambda x: x * 2 if "pytest" in sys.modules and pytest.mark is not None else x)
    x = target.randn(3)
    for _ in range(2):
        assert torch.equal(captured(x), x * 2)
    assert captured.report().replays == 1
