"""Limits for the CPU time of commands, including child processes."""

import resource
import subprocess
import sys
from collections.abc import Sequence

import pytest
from tests.support import clean_environ, scaled_cpu_seconds


def cpu_s(*command: str) -> float:
    return scaled_cpu_seconds(lambda: _once(command))


def _once(command: Sequence[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *command], env=clean_environ(), capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.parametrize("args", [("--help",), ("explain", "CFG001"), ("explain", "safe"), ("settings",)], ids=" ".join)
def test_reading_commands_are_fast(args: tuple[str, ...]) -> None:
    assert cpu_s("-m", "rocsolid", *args) <= 0.15


@pytest.mark.torch
def test_static_probe_is_about_as_fast_as_importing_torch() -> None:
    probe, torch = cpu_s("-m", "rocsolid", "probe"), cpu_s("-c", "import torch")

    assert probe <= 1.5
    assert probe <= 1.3 * torch


def test_importing_rocsolid_is_fast() -> None:
    assert cpu_s("-c", "import rocsolid") - cpu_s("-c", "pass") <= 0.05
