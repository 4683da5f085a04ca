"""`rs.optimize` and `rs.compile` of a module behave like a module, as torch's own `OptimizedModule` does."""

import copy
import inspect
import logging
import pickle
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import rocsolid as rs
from rocsolid.errors import UsageError
from rocsolid.model.form import Form

pytest.importorskip("torch")
import torch

from rocsolid.optimize import form_race, optimized

pytestmark = pytest.mark.torch


class Net(torch.nn.Module):  # type: ignore[misc]
    """Has an attribute, a method, a buffer and a module inside."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.register_buffer("shift", torch.ones(4))
        self.scale = 2.0

    def forward(self, x: Any, power: int = 1) -> Any:
        return (self.linear(x) * self.scale + self.shift) ** power

    def twice(self, x: Any) -> Any:
        return self(self(x))


class CountsCalls:
    """A form that calls the model and counts; stands for compiled code."""

    def __init__(self, model: Any) -> None:
        self.model, self.calls, self.error = model, 0, 0.0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        return self.model(*args, **kwargs) + self.error


@pytest.fixture(autouse=True)
def _no_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


@pytest.fixture
def net() -> Any:
    return Net().eval()


@pytest.fixture
def form(net: Any) -> CountsCalls:
    return CountsCalls(net)


@pytest.fixture
def fast(net: Any, form: CountsCalls, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The result of rs.optimize, with the counted form chosen."""
    makers = {Form.EAGER: lambda: net, Form.EAGER_GRAPH: lambda: form}
    monkeypatch.setattr(optimized, "available_forms", lambda *_, **__: makers)

    def second(forms: Any, times: Any) -> Any:
        forms[1].result = replace(forms[1].result, timing=times.timing(forms[1].form.label))
        return forms[1], "the test chooses it"

    monkeypatch.setattr(form_race, "choose_winner", second)
    return rs.optimize(net, torch.ones(2, 4), budget_s=60)


def is_fast(fast: Any, form: CountsCalls) -> bool:
    before = form.calls
    fast(torch.ones(2, 4))
    return form.calls > before


def wrapped(kind: str, net: Any, fast: Any) -> Any:
    return {"optimize": lambda: fast, "compile": lambda: rs.compile(net, backend="eager")}[kind]()


@pytest.mark.parametrize("kind", ["optimize", "compile"])
def test_it_does_what_torch_expects_of_a_compiled_module(kind: str, net: Any, fast: Any) -> None:
    x = torch.randn(2, 4)
    reference, module = torch.compile(net, backend="eager"), wrapped(kind, net, fast)
    assert isinstance(module, torch.nn.Module)
    assert torch.equal(module(x), reference(x))
    assert torch.equal(module(x, power=2), reference(x, power=2))
    assert [id(p) for p in module.parameters()] == [id(p) for p in reference.parameters()]
    assert len(module.state_dict()) == len(reference.state_dict())
    assert module.scale == reference.scale == 2.0
    module.scale = 3.0
    assert net.scale == 3.0
    assert torch.allclose(module.twice(x), net.twice(x))
    for method in ("eval", "train", "float", "cpu"):
        assert getattr(module, method)() is module
        assert getattr(reference, method)() is reference
    assert module.to(torch.float64) is module
    assert module.linear.weight.dtype is torch.float64
    outer = torch.nn.Sequential(module, torch.nn.ReLU())
    assert len(list(outer.parameters())) == 2
    seen: list[str] = []
    handle = module.register_forward_hook(lambda *_: seen.append("hook"))
    module.eval()(x.double())
    assert seen
    handle.remove()


def test_it_is_an_instance_of_the_models_class_with_its_state_dict(net: Any, fast: Any) -> None:
    assert isinstance(fast, Net)
    assert list(fast.state_dict()) == list(net.state_dict())
    assert fast.linear is net.linear
    assert "Linear" in repr(fast)
    assert "<iframe" in fast._repr_html_()
    assert inspect.signature(fast) == inspect.signature(net.forward)
    assert fast.rocsolid.model is net
    assert isinstance(fast, rs.OptimizedModule)


def test_eval_to_and_load_state_dict_keep_the_chosen_form(fast: Any, form: CountsCalls) -> None:
    assert is_fast(fast.eval(), form)
    assert is_fast(fast.to("cpu"), form)
    fast.load_state_dict(fast.state_dict())
    assert is_fast(fast, form)
    assert fast.report().unused_because == ""


def test_training_mode_runs_in_eager_and_says_so(
    fast: Any, form: CountsCalls, caplog: pytest.LogCaptureFixture
) -> None:
    fast.train()
    assert not is_fast(fast, form)
    assert "the model is in training mode, and was in eval mode when it was measured" in fast.report().unused_because
    assert [text for text in caplog.messages if "Net runs in eager: the model is in training mode" in text]
    assert is_fast(fast.eval(), form)
    assert fast.report().unused_because == ""
    torch.nn.Sequential(fast).train()
    assert not is_fast(fast, form)


def test_after_a_change_of_dtype_the_form_is_verified_again(fast: Any, form: CountsCalls) -> None:
    fast.double()
    with pytest.raises(RuntimeError, match="dtype"):  # as the model itself
        fast(torch.ones(2, 4))
    x = torch.ones(2, 4, dtype=torch.float64)
    fast.double()
    fast(x)
    before = form.calls
    fast(x)
    assert form.calls == before + 1


def test_a_form_that_is_wrong_after_a_change_is_not_used(
    fast: Any, form: CountsCalls, caplog: pytest.LogCaptureFixture
) -> None:
    fast.double()
    form.error = 100.0
    x = torch.ones(2, 4, dtype=torch.float64)
    assert torch.equal(fast(x), form.model(x))
    assert torch.equal(fast(x), form.model(x))
    assert "relative error" in fast.report().unused_because
    assert caplog.messages


def test_frozen_weights_are_not_used_after_new_ones_were_loaded(fast: Any, form: CountsCalls) -> None:
    fast.rocsolid._weights_are_constants = True
    fast.load_state_dict(fast.state_dict())
    assert not is_fast(fast, form)
    assert "inductor.freezing" in fast.report().unused_because


def test_a_copy_and_a_pickle_are_refused_with_a_fix(fast: Any) -> None:
    for action in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(UsageError, match=r"cannot be copied or pickled"):
            action(fast)
    assert copy.deepcopy(fast.rocsolid.model)(torch.ones(1, 4)).shape == (1, 4)


def test_a_compiled_module_can_be_copied_and_pickled(net: Any) -> None:
    compiled = rs.compile(net, backend="eager")
    x = torch.ones(2, 4)
    assert torch.equal(copy.deepcopy(compiled)(x), net(x))
    assert torch.equal(pickle.loads(pickle.dumps(compiled))(x), net(x))  # noqa: S301 - our own


class FullyShardedDataParallel(torch.nn.Module):  # type: ignore[misc]
    """Has the name of torch's wrapper; the real one needs several processes."""


@pytest.mark.parametrize("function", ["capture", "optimize"])
def test_sharded_models_are_refused_by_name(function: str) -> None:
    call: Any = {"capture": rs.capture, "optimize": lambda model: rs.optimize(model, torch.ones(1))}[function]
    with pytest.raises(UsageError, match=rf"rs.{function} does not support FullyShardedDataParallel"):
        call(FullyShardedDataParallel())


def test_under_ddp_it_works_and_ddp_itself_is_refused(fast: Any, form: CountsCalls, net: Any, tmp_path: Path) -> None:
    distributed = torch.distributed
    if not distributed.is_available():
        pytest.skip("torch.distributed is not available")
    distributed.init_process_group(
        "gloo", store=distributed.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1
    )
    try:
        parallel = torch.nn.parallel.DistributedDataParallel(fast)
        x = torch.ones(2, 4)
        assert torch.equal(parallel.eval()(x), net(x))
        before = form.calls
        parallel(x)
        assert form.calls == before + 1
        with pytest.raises(UsageError, match=r"rs\.optimize does not support DistributedDataParallel"):
            rs.optimize(parallel, x)
        from torch.distributed.fsdp import fully_shard

        with pytest.raises(UsageError, match=r"fully_shard cannot be applied to the result of rs\.optimize"):
            fully_shard(fast)
    finally:
        distributed.destroy_process_group()


def test_a_wrong_value_of_verify_is_refused() -> None:
    with pytest.raises(UsageError, match="sometimes"):
        rs.optimize(torch.sin, torch.ones(1), verify="sometimes")


def test_messages_go_to_the_logger_only(fast: Any, capsys: pytest.CaptureFixture[str]) -> None:
    logging.getLogger("rocsolid").setLevel(logging.ERROR)
    try:
        fast.train()(torch.ones(2, 4))
    finally:
        logging.getLogger("rocsolid").setLevel(logging.NOTSET)
    assert capsys.readouterr().out == ""
