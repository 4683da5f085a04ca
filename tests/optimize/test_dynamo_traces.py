"""Saved Dynamo traces are used by the next process, only for the same model, and only while its objects are unchanged."""

import dataclasses
import functools
import json
import logging
import math
import pickle
import re
from pathlib import Path
from typing import Any

import pytest
from tests.support import clean_environ, run_python

pytest.importorskip("torch")
import torch

import rocsolid as rs
from rocsolid.measure import user_cache
from rocsolid.model.form import Form
from rocsolid.optimize.dynamo_traces import DynamoTraces
from rocsolid.optimize.unique_code_wrapper import UniqueCodeWrapper
from rocsolid.torchapi.dynamo import precompile
from rocsolid.torchapi.dynamo.precompile import can_save_traces, describe_guarded, describe_object

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(not can_save_traces(), reason="this torch cannot save Dynamo traces"),
]
COMPILED_GRAPH, COMPILED = Form.COMPILED_GRAPH.label, Form.COMPILED.label
MODEL = """
import torch

class Model(torch.nn.Module):
    def __init__(self, act):
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(8, 8) for _ in range(1)])
        self.act = act

    def forward(self, x, *, twice=False):
        if type(x) not in (torch.Tensor, torch.nn.Parameter):  # for this, Dynamo uses a name of torch that contains its address
            raise TypeError
        for layer in self.layers:
            x = self.act(layer(x))
        return {"x": x * 2 if twice else x}
"""
PROGRAM = """
import json, sys, torch
sys.path.insert(0, sys.argv[1])
import user_model
from functools import partial
import rocsolid as rs
from rocsolid.optimize import form_race, optimized as module
from rocsolid.optimize.example_inputs import Example

def choose(forms, times):
    winner = next(raced for raced in forms if raced.form == sys.argv[4] and raced.function is not None)
    return winner, "the test chose it"

form_race.choose_winner = choose
torch.manual_seed(0)
acts = {"relu": torch.relu, "tanh": torch.tanh}
model, x = user_model.Model(acts[sys.argv[3]]).eval(), torch.randn(4, 8)
with torch.no_grad():
    fast = module.optimized(
        model, [Example((x,), {})], rs.resolve("fast"), artefacts=module.Path(sys.argv[2]), budget_s=None,
        capture=partial(rs.capture, backend="record"),
    )
    correct = torch.allclose(fast(x)["x"], model(x)["x"], atol=1e-5)
    y = torch.randn(6, 8)  # must be compiled again, without saving
    correct = correct and torch.allclose(fast(y)["x"], model(y)["x"], atol=1e-5)
    refused = [r.message for r in fast.captured.report().refusals] if fast.captured else []
    other = user_model.Model(torch.sigmoid).eval()  # of the same class, compiled by other code in this process
    other_correct = torch.allclose(torch.compile(other, backend="eager")(x)["x"], other(x)["x"], atol=1e-5)
from torch._dynamo.utils import counters
print(json.dumps({
    "chosen": fast.report().chosen.label, "correct": correct, "other_correct": other_correct, "refused": refused,
    "hits": counters["dynamo_cache"]["dynamo_cache_hit"], "misses": counters["dynamo_cache"]["dynamo_cache_miss"],
    "forms": sorted(r.form.label for r in fast.report().forms),
}))
"""


@pytest.fixture(scope="module")
def run_in_process(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("traces")
    (folder / "user_model.py").write_text(MODEL)

    def run(saved: str, act: str, winner: str = COMPILED_GRAPH) -> Any:
        env = {**clean_environ(), "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor")}
        ran = run_python("-c", PROGRAM, str(folder), str(folder / saved), act, winner, env=env)
        assert ran.code == 0, ran.err
        # A CUDA build of torch logs that there is no device.
        late_compile = r"Model.* compiles within this call, which differs from the examples of rs\.optimize"
        expected = re.compile(rf"No CUDA runtime is found|^{late_compile}|^  fix: pass such an example to rs\.optimize")
        logged = [line for line in ran.err.splitlines() if not expected.search(line)]
        assert not logged, "torch's messages about guards and edited code are hidden"
        result = json.loads(ran.out.splitlines()[-1])
        assert result["correct"]
        assert not result["refused"]
        assert result["other_correct"], "another model of the class is not affected"
        return result

    return folder, run


def test_the_next_process_does_not_trace_an_unchanged_model(run_in_process: Any) -> None:
    folder, run = run_in_process
    first = run("saved", "relu")
    assert (first["chosen"], first["hits"]) == (COMPILED_GRAPH, 0)
    (file,) = (folder / "saved").glob("*.traces")
    assert file.stat().st_mode & 0o777 == 0o600
    second = run("saved", "relu")
    assert (second["chosen"], second["hits"], second["misses"]) == (COMPILED_GRAPH, 1, 0)

    previous_traces = file.read_bytes()
    with_tanh = run("saved", "tanh")
    assert with_tanh["hits"] == 0, "another activation is noticed, although torch drops the guard on it"
    assert file.read_bytes() != previous_traces, "the new trace is saved"

    text = (folder / "user_model.py").read_text()
    (folder / "user_model.py").write_text(text.replace("x * 2 if twice else x", "x * 3 if twice else x"))
    previous_traces = file.read_bytes()
    assert run("saved", "tanh")["chosen"] == COMPILED_GRAPH, "edited code is traced again, with correct results"
    assert file.read_bytes() != previous_traces
    (folder / "user_model.py").write_text(text)


def test_a_form_without_a_graph_keeps_all_its_guards(run_in_process: Any) -> None:
    folder, run = run_in_process
    result = run("plain", "relu", COMPILED)
    assert result["chosen"] == COMPILED
    assert result["forms"] == ["compiled", "eager"], "it was prepared again, without traces"
    assert not list((folder / "plain").glob("*.traces"))
    again = run("plain", "relu", COMPILED)
    assert (again["chosen"], again["hits"], again["misses"]) == (COMPILED, 0, 0), (
        "the next process uses no traces either"
    )


def add_one(x: float) -> float:
    return x + 1


def make_adder(n: int) -> Any:
    def inner(x: float) -> float:
        return x + n

    return inner


def test_objects_are_described_independently_of_their_address() -> None:
    other_globals: dict[str, Any] = {}
    exec("def add_one(x):\n    return x + 1", other_globals)  # noqa: S102
    twin = other_globals["add_one"]
    twin.__module__ = add_one.__module__
    assert describe_object(add_one) == describe_object(add_one)
    assert describe_object(add_one) == describe_object(twin)
    different_objects = (
        add_one, make_adder(1), make_adder(2), torch.relu, torch.tanh, torch.nn.Linear, math, functools.partial(add_one, 1),
        functools.partial(add_one, 2), add_one.__code__, make_adder(1).__code__, "text", 3, 3.0, None, True, torch.nn.Linear(1, 1).forward,
    )  # fmt: skip
    assert len({describe_object(value) for value in different_objects}) == len(different_objects)
    with pytest.raises(TypeError):
        describe_object(object())


def test_guard_names_are_evaluated_as_dynamo_writes_them() -> None:
    model = UniqueCodeWrapper(torch.nn.Linear(2, 2))
    names = ["L['self'].model.forward", "G['__import_torch_dot_nn'].Linear", "G['__builtins_dict___3']['len']"]
    descriptions = describe_guarded(model, names)
    assert descriptions is not None
    assert descriptions[names[1]].endswith("torch.nn.modules.linear.Linear")
    assert descriptions[names[2]].endswith("builtins.len")
    assert describe_guarded(model, [*names, "L['x'].nothing"]) is None
    assert describe_guarded(model, ["G['not_there']"]) is None


class ModelWithGraphBreak(torch.nn.Module):  # type: ignore[misc]
    """A model with two compiled graphs, from code that all models of the class share."""

    def __init__(self, act: Any) -> None:
        super().__init__()
        self.act = act

    def forward(self, x: Any) -> Any:
        x = self.act(x)
        torch._dynamo.graph_break()
        return self.act(x) + 1


def test_shared_code_keeps_all_its_guards(tmp_path: Path) -> None:
    wrappers = [UniqueCodeWrapper(ModelWithGraphBreak(act)) for act in (torch.relu, torch.tanh)]
    x = torch.linspace(-2, 2, 8)
    for index, wrapper in enumerate(wrappers):
        (tmp_path / str(index)).mkdir()
        with precompile.saving_traces(wrapper.forward.__func__, tmp_path / str(index), {}) as dropped:
            assert torch.equal(torch.compile(wrapper, backend="eager")(x), wrapper.model(x))
        assert not [name for name in dropped if name.endswith(".act")]
    precompile.take_traces()


def test_names_of_a_loaded_trace_are_not_reused() -> None:
    unique_id = precompile._UNIQUE_ID.get()
    current = int(unique_id("x").rpartition("_")[2])
    precompile._skip_used_names(
        ["__builtins", f"__builtins_dict___{current + 7}", "_7000", "x_9000", "__fn_1_ab_123456789012"]
    )
    assert unique_id("x") == f"x_{current + 8}"
    precompile._skip_used_names([])
    assert unique_id("x") == f"x_{current + 9}"


def test_the_wrapper_does_not_change_the_model() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout()).train()
    model[1].eval()
    one, other = UniqueCodeWrapper(model), UniqueCodeWrapper(model)
    assert (model.training, model[1].training) == (True, False)
    assert one.forward.__code__ is not other.forward.__code__
    x = torch.ones(1, 2)
    assert torch.equal(one(x), model(x))
    assert str(rs.capture(one, backend="record").__signature__) == "(input)"


def test_unusable_trace_files_are_ignored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file, model = tmp_path / "key.bin", torch.nn.Linear(2, 2)
    tmp_path.chmod(0o700)
    for payload in (b"", b"[]", b'{"traces": {"a": 3}, "guards": {}}', b'{"guards": {}}'):
        user_cache.write(file.with_suffix(".traces"), payload)
        traces = DynamoTraces(model, file)
        traces.load()
        assert traces._saved == {}
        assert "ignored: " in caplog.messages[-1]
    assert DynamoTraces(torch.sin, file).model is torch.sin
    scripted = torch.jit.trace(model, torch.ones(1, 2))
    assert DynamoTraces(scripted, file).model is scripted
    traces.disable()
    assert traces.model is model
    outer = UniqueCodeWrapper(model)  # a model with a submodule of that name
    assert DynamoTraces(outer, None).model is outer
    with traces.tracing(Form.COMPILED) as uses_traces:
        assert uses_traces is False


def test_traces_are_not_saved_if_the_user_enabled_caching_precompile() -> None:
    with torch._dynamo.config.patch(caching_precompile=True):
        assert not can_save_traces()


def test_a_module_named_by_its_address_is_renamed_to_its_import(tmp_path: Path) -> None:
    address = f"_{id(torch.nn)}_c0"
    add_one.__globals__[address] = torch.nn
    try:
        with precompile.saving_traces(add_one, tmp_path, {}) as dropped:
            for name in (f"G['{address}'].Linear", "G['_7_c0'].x", "L['self']"):
                logging.getLogger("torch._dynamo.guards").warning(
                    "%s guard on %s is dropped with caching_precompile=True.", "ID_MATCH", name
                )
    finally:
        del add_one.__globals__[address]
    assert dropped == ["G['__import_torch_dot_nn'].Linear", "G['_7_c0'].x", "L['self']"]


def test_a_guard_on_a_default_can_be_loaded_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._dynamo.source import DefaultsSource, LocalSource

    def reduce_as_in_torch_2_11(source: Any) -> tuple[type, tuple[Any, ...]]:
        return type(source), tuple(getattr(source, field.name) for field in dataclasses.fields(source))

    monkeypatch.setattr(DefaultsSource, "__reduce__", reduce_as_in_torch_2_11)
    source = DefaultsSource(LocalSource("f"), 0)
    with precompile.saving_traces(add_one, tmp_path, {}):
        pickled = pickle.dumps(source)
    assert pickle.loads(pickled) == source  # noqa: S301 - our own
    with pytest.raises(TypeError):
        pickle.loads(pickle.dumps(source))  # noqa: S301 - our own


def test_dropped_guards_are_collected_and_their_warnings_hidden(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    logger = logging.getLogger("torch._dynamo.guards")
    with precompile.saving_traces(add_one, tmp_path, {}) as dropped:
        logger.warning("%s guard on %s is dropped with caching_precompile=True.", "ID_MATCH", "L['self'].act")
        assert torch._dynamo.config.caching_precompile
        assert precompile._PATH_PREFIX.get()() == str(tmp_path)
    assert dropped == ["L['self'].act"]
    assert not torch._dynamo.config.caching_precompile
    assert precompile._PATH_PREFIX.get()() != str(tmp_path)
    assert not [m for m in caplog.messages if "dropped" in m]


def test_no_traces_of_classes_that_torch_cannot_save(tmp_path: Path) -> None:
    class Local(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return x

    class Setting:
        """An object that a model refers to."""

    with_object, top_level = torch.nn.Linear(2, 2), torch.nn.Sequential(torch.nn.Linear(2, 2))
    with_object.setting = Setting()
    for model in (Local(), torch.nn.Sequential(Local()), with_object):
        traces = DynamoTraces(model, tmp_path / "key.bin")
        assert not traces.enabled, "torch 2.11 would compile the model, refuse to save it, and compile it again"
        assert traces.model is model
    assert DynamoTraces(top_level, tmp_path / "key.bin").enabled
