"""The names in docs/how-to/vllm-and-sglang.md exist in the real servers. Only their Python files are needed, and no GPU."""

import argparse
import dataclasses
import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.support import ROOT

PAGE = (ROOT / "docs/how-to/vllm-and-sglang.md").read_text()


def _cells(server: str) -> str:
    """The column of a server in the tables, and the commands that start it."""
    column = {"vllm": 2, "sglang": 3}[server]
    rows = [line.split("|") for line in PAGE.splitlines() if line.startswith("| ") and "vLLM | SGLang" not in line]
    starts = re.findall(rf"-m ({server}\.\S+ .*)", PAGE)
    assert len(rows) == 8
    assert len(starts) == 1
    return "\n".join([*(row[column] for row in rows), *starts])


def _options(text: str) -> list[str]:
    return re.findall(r"(?<![\w-])--[a-z][\w-]+", text)


def _source(module: str) -> str:
    spec = importlib.util.find_spec(module)
    assert spec is not None, module
    assert spec.origin is not None, module
    return Path(spec.origin).read_text()


def test_vllm() -> None:
    config = pytest.importorskip("vllm.config")
    arguments = pytest.importorskip("vllm.engine.arg_utils")
    text = _cells("vllm")
    known = {f"--{field.name.replace('_', '-')}" for field in dataclasses.fields(arguments.EngineArgs)}
    assert set(_options(text)) <= known
    values = re.findall(r"--(\w+)-config '(\{.*?\})'", text)
    assert len(values) == 4
    for kind, written in values:
        wanted: dict[str, Any] = json.loads(written)
        made = {"compilation": config.CompilationConfig, "profiler": config.ProfilerConfig}[kind](**wanted)
        for name, value in wanted.items():
            found = getattr(made, name)
            assert value in (found, getattr(found, "name", None)), (name, found)
    assert config.CompilationMode(0).name == "NONE"
    assert '"/start_profile"' in _source("vllm.entrypoints.serve.profile.api_router")
    assert _source(re.findall(r"vllm\.entrypoints\S+", PAGE)[0])


def test_sglang() -> None:
    server_args = pytest.importorskip("sglang.srt.server_args")
    environ = pytest.importorskip("sglang.srt.environ")
    text = _cells("sglang")
    parser = argparse.ArgumentParser()
    server_args.ServerArgs.add_cli_args(parser)
    assert set(_options(text)) <= set(parser._option_string_actions)
    variables = re.findall(r"\bSGLANG_\w+", text)
    assert variables
    assert all(hasattr(environ.envs, name) for name in variables)
    assert '"/start_profile"' in _source("sglang.srt.entrypoints.http_server")
    assert _source("sglang.launch_server")
