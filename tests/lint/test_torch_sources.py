"""Linting torch's own source: no crash, no hang, and fast enough with and without the cache."""

import ast
import gc
import importlib.util
import resource
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rocsolid.lint.check_file import check_text, may_match
from rocsolid.lint.options import Options
from rocsolid.lint.project import lint

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def torch_folder() -> Path:
    spec = importlib.util.find_spec("torch")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def test_lints_every_third_file_of_torch_without_a_crash(torch_folder: Path) -> None:
    files = sorted(torch_folder.rglob("*.py"))[::3]
    record = lint(files, Options(confidence="anywhere"), jobs=2, cache=None)

    assert [f for f in record.findings if f.code == "INT001"] == []
    assert record.files > 500
    assert len(record.skipped) <= 3, record.skipped  # written for a newer Python


def cpu_s() -> float:
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def test_no_rule_matches_where_none_can(torch_folder: Path) -> None:
    """Files without the words of a rule are not parsed; here they are, to see that nothing is lost."""
    texts = {file: file.read_bytes() for file in sorted(torch_folder.rglob("*.py"))[::3]}
    skipped = {file: text for file, text in texts.items() if not may_match(text)}
    facts = [check_text(t, file=str(f), module="m", package=False, complete=True) for f, t in skipped.items()]

    assert len(facts) > 50
    assert [f for f in facts if f.matches or f.region_starts or f.wrappers or f.allows or f.may_capture] == []


def test_checking_takes_at_most_three_and_a_half_times_the_parsing(torch_folder: Path) -> None:
    """Relative to `ast.parse`, so that the limit does not depend on the machine."""
    files = sorted((torch_folder / "_inductor").glob("*.py"))[:40]
    texts = [(str(f), f.read_bytes()) for f in files]

    def parse() -> None:
        for _, text in texts:
            ast.parse(text)

    def check() -> None:
        for name, text in texts:
            check_text(text, file=name, module="m", package=False)

    gc.disable()  # as in a worker process
    try:
        # Interleaved, because load from other processes slows down both.
        times_parsing = min(_cpu_s(check) / _cpu_s(parse) for _ in range(5))
    finally:
        gc.enable()

    assert times_parsing <= 3.5


def _cpu_s(work: Callable[[], None]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def test_a_cached_run_is_twice_as_fast(torch_folder: Path, tmp_path: Path) -> None:
    def run() -> float:
        start = cpu_s()
        lint([torch_folder / "_inductor"], Options(), jobs=1, cache=tmp_path / "lint.db")
        return cpu_s() - start

    gc.collect()
    gc.freeze()  # otherwise each collection walks over everything that earlier tests have left
    try:
        cold = run()

        # Files whose callers decide whether AMD GPUs reach a finding are parsed again.
        assert cold / min(run() for _ in range(2)) >= 2
    finally:
        gc.unfreeze()
