"""What Dynamo traced is used by the next process, for the same model alone, and only while it means the same."""

import dataclasses
import functools
import json
import logging
import math
import pickle
from pathlib import Path
from typing import Any

import pytest
from tests.support import clean_environ, run_python

pytest.importorskip("torch")
import torch

import rocsolid as rs
from rocsolid.measure import user_cache
from rocsolid.optimize.dynamo_traces import GRAPH, WHOLE, Traces
from rocsolid.optimize.unique_code_wrapper import Shell
from rocsolid.torchapi.dynamo import precompile
from rocsolid.torchapi.dynamo.precompile import can_keep_traces, meaning, meanings

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(not can_keep_traces(), reason="this torch keeps no traces of Dynamo"),
]
MODEL = """
import torch

class Model(torch.nn.Module):
    def __init__(self, act):
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(8, 8) for _ in range(1)])
        self.act = act

    def forward(self, x, *, twice=False):
        if type(x) not in (torch.Tensor, torch.nn.Parameter):  # Dynamo names torch by its address for this
            raise TypeError
        for layer in self.layers:
            x = self.act(layer(x))
        return {"x": x * 2 if twice else x}
"""
PROGRAM = """
import json, sys, torch
sys.path.insert(0, sys.argv[1])
import mine
from functools import partial
import rocsolid as rs
from rocsolid.optimize import optimized as module
from rocsolid.optimize.example_inputs import Example

def choose(entrants, raced):
    winner = next(e for e in entrants if e.name == sys.argv[4] and e.function is not None)
    return winner, "it is told to"

module.judge = choose
torch.manual_seed(0)
acts = {"relu": torch.relu, "tanh": torch.tanh}
model, x = mine.Model(acts[sys.argv[3]]).eval(), torch.randn(4, 8)
with torch.no_grad():
    fast = module.optimized(
        model, [Example((x,), {})], rs.resolve("fast"), artefacts=module.Path(sys.argv[2]), budget_s=None,
        capture=partial(rs.capture, backend="record"),
    )
    right = torch.allclose(fast(x)["x"], model(x)["x"], atol=1e-5)
    y = torch.randn(6, 8)  # must be compiled anew, with nothing kept
    right = right and torch.allclose(fast(y)["x"], model(y)["x"], atol=1e-5)
    refused = [r.message for r in fast.captured.report().refusals] if fast.captured else []
    other = mine.Model(torch.sigmoid).eval()  # of the same class, compiled by somebody else in this process
    alone = torch.allclose(torch.compile(other, backend="eager")(x)["x"], other(x)["x"], atol=1e-5)
from torch._dynamo.utils import counters
print(json.dumps({
    "chosen": fast.report().chosen, "right": right, "alone": alone, "refused": refused,
    "found": counters["dynamo_cache"]["dynamo_cache_hit"], "missed": counters["dynamo_cache"]["dynamo_cache_miss"],
    "compiled": sorted(c.name for c in fast.report().candidates),
}))
"""


@pytest.fixture(scope="module")
def in_process(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("traces")
    (folder / "mine.py").write_text(MODEL)

    def run(kept: str, act: str, winner: str = GRAPH) -> Any:
        env = {**clean_environ(), "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor")}
        ran = run_python("-c", PROGRAM, str(folder), str(folder / kept), act, winner, env=env)
        assert ran.code == 0, ran.err
        # A torch built for CUDA says on a machine without a device that it finds none.
        said = [line for line in ran.err.splitlines() if "No CUDA runtime is found" not in line]
        assert not said, "torch's lines about guards and edited code are not for the user"
        told = json.loads(ran.out.splitlines()[-1])
        assert told["right"]
        assert not told["refused"]
        assert told["alone"], "another model of the class has nothing to do with it"
        return told

    return folder, run


def test_the_next_process_does_not_trace_what_is_the_same(in_process: Any) -> None:
    folder, run = in_process
    first = run("kept", "relu")
    assert (first["chosen"], first["found"]) == (GRAPH, 0)
    (file,) = (folder / "kept").glob("*.traces")
    assert file.stat().st_mode & 0o777 == 0o600
    second = run("kept", "relu")
    assert (second["chosen"], second["found"], second["missed"]) == (GRAPH, 1, 0)

    before = file.read_bytes()
    exchanged = run("kept", "tanh")
    assert exchanged["found"] == 0, "torch drops the guard on it, and the model prints the same with it"
    assert file.read_bytes() != before, "what was traced now is kept"

    text = (folder / "mine.py").read_text()
    (folder / "mine.py").write_text(text.replace("x * 2 if twice else x", "x * 3 if twice else x"))
    before = file.read_bytes()
    assert run("kept", "tanh")["chosen"] == GRAPH, "edited code is traced anew, and answers rightly"
    assert file.read_bytes() != before
    (folder / "mine.py").write_text(text)


def test_a_form_that_is_called_as_compiled_has_all_its_guards(in_process: Any) -> None:
    folder, run = in_process
    told = run("plain", "relu", WHOLE)
    assert told["chosen"] == WHOLE
    assert told["compiled"] == ["compiled", "eager"], "set up once more, without traces"
    assert not list((folder / "plain").glob("*.traces"))
    again = run("plain", "relu", WHOLE)
    assert (again["chosen"], again["found"], again["missed"]) == (WHOLE, 0, 0), "nor does the next process use any"


def plain(x: float) -> float:
    return x + 1


def made(n: int) -> Any:
    def inner(x: float) -> float:
        return x + n

    return inner


def test_things_mean_the_same_by_what_they_are() -> None:
    again: dict[str, Any] = {}
    exec("def plain(x):\n    return x + 1", again)  # noqa: S102
    twin = again["plain"]
    twin.__module__ = plain.__module__
    assert meaning(plain) == meaning(plain)
    assert meaning(plain) == meaning(twin)
    several = (
        plain, made(1), made(2), torch.relu, torch.tanh, torch.nn.Linear, math, functools.partial(plain, 1),
        functools.partial(plain, 2), plain.__code__, made(1).__code__, "text", 3, 3.0, None, True, torch.nn.Linear(1, 1).forward,
    )  # fmt: skip
    assert len({meaning(value) for value in several}) == len(several)
    with pytest.raises(TypeError):
        meaning(object())


def test_names_are_looked_up_as_dynamo_writes_them() -> None:
    model = Shell(torch.nn.Linear(2, 2))
    names = ["L['self'].model.forward", "G['__import_torch_dot_nn'].Linear", "G['__builtins_dict___3']['len']"]
    found = meanings(model, names)
    assert found is not None
    assert found[names[1]].endswith("torch.nn.modules.linear.Linear")
    assert found[names[2]].endswith("builtins.len")
    assert meanings(model, [*names, "L['x'].nothing"]) is None
    assert meanings(model, ["G['not_there']"]) is None


class Breaks(torch.nn.Module):  # type: ignore[misc]
    """Two graphs, compiled under code that all models of the class share."""

    def __init__(self, act: Any) -> None:
        super().__init__()
        self.act = act

    def forward(self, x: Any) -> Any:
        x = self.act(x)
        torch._dynamo.graph_break()
        return self.act(x) + 1


def test_what_others_may_use_has_all_its_guards(tmp_path: Path) -> None:
    shells = [Shell(Breaks(act)) for act in (torch.relu, torch.tanh)]
    x = torch.linspace(-2, 2, 8)
    for number, shell in enumerate(shells):
        (tmp_path / str(number)).mkdir()
        with precompile.keeping_traces(shell.forward.__func__, tmp_path / str(number), {}) as dropped:
            assert torch.equal(torch.compile(shell, backend="eager")(x), shell.model(x))
        assert not [name for name in dropped if name.endswith(".act")]
    precompile.take_traces()


def test_names_that_came_with_a_trace_are_stepped_over() -> None:
    name = precompile._NAMED.reach()
    now = int(name("x").rpartition("_")[2])
    precompile._count_on_from(
        ["__builtins", f"__builtins_dict___{now + 7}", "_7000", "x_9000", "__fn_1_ab_123456789012"]
    )
    assert name("x") == f"x_{now + 8}"
    precompile._count_on_from([])
    assert name("x") == f"x_{now + 9}"


def test_a_shell_changes_nothing_about_the_model() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout()).train()
    model[1].eval()
    one, other = Shell(model), Shell(model)
    assert (model.training, model[1].training) == (True, False)
    assert one.forward.__code__ is not other.forward.__code__
    x = torch.ones(1, 2)
    assert torch.equal(one(x), model(x))
    assert str(rs.capture(one, backend="record").__signature__) == "(input)"


def test_what_cannot_be_used_is_left(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file, model = tmp_path / "key.bin", torch.nn.Linear(2, 2)
    tmp_path.chmod(0o700)
    for payload in (b"", b"[]", b'{"traces": {"a": 3}, "guards": {}}', b'{"guards": {}}'):
        user_cache.write(file.with_suffix(".traces"), payload)
        traces = Traces(model, file)
        traces.load()
        assert traces._kept == {}
        assert "are not used" in caplog.messages[-1]
    assert Traces(torch.sin, file).model is torch.sin
    scripted = torch.jit.trace(model, torch.ones(1, 2))
    assert Traces(scripted, file).model is scripted
    traces.give_up()
    assert traces.model is model
    outer = Shell(model)  # a model that has a part by that name
    assert Traces(outer, None).model is outer
    with traces.around(WHOLE) as changed:
        assert changed is False


def test_whoever_uses_it_already_is_not_disturbed() -> None:
    with torch._dynamo.config.patch(caching_precompile=True):
        assert not can_keep_traces()


def test_a_module_that_dynamo_names_by_its_address_is_named_by_its_import(tmp_path: Path) -> None:
    address = f"_{id(torch.nn)}_c0"
    plain.__globals__[address] = torch.nn
    try:
        with precompile.keeping_traces(plain, tmp_path, {}) as dropped:
            for name in (f"G['{address}'].Linear", "G['_7_c0'].x", "L['self']"):
                logging.getLogger("torch._dynamo.guards").warning(
                    "%s guard on %s is dropped with caching_precompile=True.", "ID_MATCH", name
                )
    finally:
        del plain.__globals__[address]
    assert dropped == ["G['__import_torch_dot_nn'].Linear", "G['_7_c0'].x", "L['self']"]


def test_a_guard_on_a_default_can_be_loaded_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._dynamo.source import DefaultsSource, LocalSource

    def as_in_2_11(source: Any) -> tuple[type, tuple[Any, ...]]:
        return type(source), tuple(getattr(source, field.name) for field in dataclasses.fields(source))

    monkeypatch.setattr(DefaultsSource, "__reduce__", as_in_2_11)
    source = DefaultsSource(LocalSource("f"), 0)
    with precompile.keeping_traces(plain, tmp_path, {}):
        pickled = pickle.dumps(source)
    assert pickle.loads(pickled) == source  # noqa: S301 - our own
    with pytest.raises(TypeError):
        pickle.loads(pickle.dumps(source))  # noqa: S301 - our own


def test_what_torch_says_of_guards_is_heard_and_nothing_else(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("torch._dynamo.guards")
    with precompile.keeping_traces(plain, tmp_path, {}) as dropped:
        logger.warning("%s guard on %s is dropped with caching_precompile=True.", "ID_MATCH", "L['self'].act")
        assert torch._dynamo.config.caching_precompile
        assert precompile._CACHE.reach().path_prefix() == str(tmp_path)
    assert dropped == ["L['self'].act"]
    assert not torch._dynamo.config.caching_precompile
    assert precompile._CACHE.reach().path_prefix() != str(tmp_path)
    assert not [m for m in caplog.messages if "dropped" in m]
