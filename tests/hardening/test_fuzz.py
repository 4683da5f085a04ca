"""A fixed part of `make fuzz`: the same inputs, arguments and interrupts in every run (D12, D13, D14)."""

import logging
import os
import warnings
from pathlib import Path

import pytest

pytest.importorskip("msgspec")

from tests.hardening.fuzz import fuzz_arguments, fuzz_inputs
from tests.hardening.interrupts import interrupt_at_random


@pytest.fixture(autouse=True)
def quiet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCSOLID_DEBUG", "1")
    monkeypatch.setenv("ROCSOLID_LEDGER", str(tmp_path / "ledger.db"))
    monkeypatch.setattr(logging.root, "manager", logging.root.manager)
    monkeypatch.chdir(tmp_path)


def test_mutated_files_end_in_a_result_or_a_sentence(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert fuzz_inputs(600, 7, tmp_path) == []


def test_random_arguments_end_in_a_documented_exit_code(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert fuzz_arguments(150, 7, tmp_path) == []


def test_d12_interrupts_end_with_130() -> None:
    assert interrupt_at_random(12, 7, [["probe"], ["explain", "CFG001"], ["breaks", "work.py:build"]], 1.5) == []
    assert os.getpid()
