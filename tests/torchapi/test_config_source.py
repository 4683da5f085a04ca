"""Reading torch's config modules from their source."""

import os
from pathlib import Path

import pytest
from tests.support import clean_environ, run_python

from rocsolid.probe.packages import torch_folder
from rocsolid.torchapi.config.source import UNREADABLE, Build, ConfigSource, read_configs

MODULE = """
import os
import torch
from torch.utils._config_module import Config, get_tristate_env, inherit_fields_from
plain = os.environ.get("X_PLAIN") == "1"
number: int = int(os.environ.get("X_NUMBER", "3"))
by_function = None
def decide():
    if "X_FUNCTION" in os.environ:
        return os.environ["X_FUNCTION"]
    return "default"
by_function = decide()
by_variable = Config(default=False, env_name_default="X_MOVING")
forced = Config(default=True, env_name_force=["X_FORCED", "X_ALSO"])
other = Config(alias="torch._dynamo.config.recompile_limit")
tristate = get_tristate_env("X_TRISTATE")
for_hip = 32 if torch.version.hip else 16
out_of_reach = torch.cuda.device_count()
annotated: torch.nothing.Here = 1
class inner:
    value = os.environ.get("X_INNER", "a")
    twice = value * 2
@inherit_fields_from(inner)
class child(inner):
    more = 1
"""


def entries(hip: str | None = None, **variables: str) -> dict[str, object]:
    parsed = ConfigSource.parse(MODULE).entries(variables, Build(hip=hip))
    return {name: entry.value for name, entry in parsed.items()}


def test_defaults_are_those_of_an_empty_environment() -> None:
    assert entries() == {
        "plain": False,
        "number": 3,
        "by_function": "default",
        "by_variable": False,
        "forced": True,
        "other": UNREADABLE,
        "tristate": None,
        "for_hip": 16,
        "out_of_reach": UNREADABLE,
        "annotated": 1,
        "inner.value": "a",
        "inner.twice": "aa",
        "child.value": "a",
        "child.twice": "aa",
        "child.more": 1,
    }


def test_variables_have_the_same_effect_as_in_torch() -> None:
    values = entries(X_PLAIN="1", X_NUMBER="7", X_FUNCTION="f", X_MOVING="1", X_ALSO="0", X_TRISTATE="0", X_INNER="b")

    assert (values["plain"], values["number"], values["by_function"]) == (True, 7, "f")
    assert (values["by_variable"], values["forced"], values["tristate"], values["inner.twice"]) == (
        True,
        False,
        False,
        "bb",
    )


def test_a_rocm_build_has_its_own_defaults() -> None:
    assert entries(hip="7.2")["for_hip"] == 32


def test_the_variables_of_each_entry_are_found() -> None:
    parsed = ConfigSource.parse(MODULE).entries({"X_ALSO": "0"}, Build())

    assert parsed["by_function"].variables == ("X_FUNCTION",)
    assert parsed["inner.value"].variables == ("X_INNER",)
    assert parsed["by_variable"].variables == ("X_MOVING",)
    assert parsed["forced"].forcing_variables == ("X_FORCED", "X_ALSO")
    assert parsed["forced"].forced
    assert parsed["other"].alias == "torch._dynamo.config.recompile_limit"


def test_a_file_that_is_not_python_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "_inductor").mkdir()
    (tmp_path / "_inductor/config.py").write_text("def (")

    assert read_configs(tmp_path, [{}], Build()) == [{}]


LIVE = """
import importlib, json, sys, warnings
warnings.simplefilter("ignore")
from rocsolid.torchapi.config import live as config
for name in config.MODULES.values():
    importlib.import_module(name)
from rocsolid.torchapi.config.upstream import to_json_value
import torch
found = {}
for owner, module in config.MODULES.items():
    for name in sys.modules[module]._config:
        if name != "TYPE_CHECKING":
            found[f"{owner}.{name}"] = to_json_value(sys.modules[module].__getattr__(name))
print(json.dumps([torch.__version__, found], default=repr))
"""


@pytest.mark.torch
@pytest.mark.parametrize(
    "variables",
    [
        {},
        {
            "TORCHINDUCTOR_MAX_AUTOTUNE": "1",
            "TORCHINDUCTOR_FX_GRAPH_CACHE": "0",
            "TORCHINDUCTOR_COMPILE_THREADS": "7",
            "TORCH_COMPILE_FORCE_DISABLE_CACHES": "1",
            "TORCHDYNAMO_SUPPRESS_ERRORS": "0",
        },
    ],
)
def test_every_value_matches_the_live_modules(variables: dict[str, str]) -> None:
    """Compare every entry of the installed torch, with and without variables, with the imported module."""
    folder = torch_folder()
    assert folder is not None
    environ = clean_environ(**variables)
    version, live = run_python("-c", LIVE, env=environ).json()
    (read,) = read_configs(folder, [environ], Build(version=version))
    from rocsolid.torchapi.config.upstream import to_json_value

    from_source = {name: to_json_value(entry.value) for name, entry in read.items() if entry.value is not UNREADABLE}
    wrong = {name: (value, live[name]) for name, value in from_source.items() if name in live and live[name] != value}

    assert wrong == {}
    assert from_source.keys() <= live.keys()
    assert len(live.keys() - from_source.keys()) <= 5  # values that cannot be read without importing torch
    assert len(from_source) > 500


def test_reading_does_not_change_this_process() -> None:
    before = dict(os.environ)
    ConfigSource.parse("import os\nos.environ['X_LEAK'] = '1'\n").entries({}, Build())

    assert dict(os.environ) == before
