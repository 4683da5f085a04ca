"""A fixed part of `make fuzz`: the same inputs, arguments and interrupts in every run (D12, D13, D14)."""

import logging
import warnings
from pathlib import Path

import pytest

pytest.importorskip("msgspec")

from tests.hardening.fuzz import fuzz_arguments, fuzz_inputs
from tests.hardening.interrupts import interrupt_at_random
from tests.support import run_python


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


@pytest.mark.parametrize("import_number", [1, 2, 5, 20, 50])
def test_d12_an_interrupt_during_an_import_ends_with_130(import_number: int) -> None:
    """The process sends itself a SIGINT when it imports its nth module."""
    program = f"""
import os, signal, sys
from rocsolid.cli import main
class Interrupt:
    left = {import_number}
    def find_spec(self, name, path=None, target=None):
        self.left -= 1
        if self.left == 0: os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupt())
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.exit(main())
"""
    ran = run_python("-c", program, "explain", "CFG001")
    assert (ran.code, ran.out, ran.err) == (130, "", "rocsolid: interrupted\n")


def test_d12_interrupts_end_with_130() -> None:
    assert interrupt_at_random(12, 7, [["probe"], ["explain", "CFG001"], ["breaks", "work.py:build"]], 1.5) == []
