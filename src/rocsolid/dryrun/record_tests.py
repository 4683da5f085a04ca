"""Runs a project's tests on fake tensors and records how they launch its Triton kernels. Runs in the child process."""

import contextlib
import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from rocsolid.dryrun.compile_kernels import CompileContext, progress
from rocsolid.dryrun.request import ChildResult, KernelSignature, Request
from rocsolid.errors import CannotRunError
from rocsolid.torchapi.pretend.custom_ops import record_implementations, run_called_operators
from rocsolid.torchapi.pretend.device import fake_mode
from rocsolid.torchapi.pretend.triton_driver import Launch, LaunchRecord, record_launches

_CASES: Final = 2  # parameter sets of one test function; more would only repeat its launches
_DEFAULTS: Final = {"num_warps": 4, "num_stages": 3}  # of the chip that the tests run for; other chips have their own


def record_tests(request: Request, shared: CompileContext) -> ChildResult:
    """Return a signature for each kernel that the tests launch. Tests may fail: fake tensors have no values to compare."""
    try:
        import pytest
    except ImportError as error:
        msg = "--tests needs pytest, which is not installed"
        raise CannotRunError(msg) from error

    record = record_launches(first_only=True)
    operators = record_implementations()
    ran: Counter[str] = Counter()

    class Plugin:
        @pytest.hookimpl(hookwrapper=True)
        def pytest_runtest_call(self, item: Any) -> Iterator[None]:
            progress(shared, f"recording {item.name}, {len(record.launches)} launches so far")
            with fake_mode(), run_called_operators(operators):
                yield

        def pytest_runtest_setup(self, item: Any) -> None:
            name = f"{item.fspath}:{getattr(item, 'originalname', item.name)}"
            ran[name] += 1
            if ran[name] > _CASES or (shared.ends and time.monotonic() > shared.ends):
                pytest.skip("recorded")

    arguments = [*request.tests, "-q", "-p", "no:cacheprovider", "--no-header", "-W", "ignore"]
    with Path(os.devnull).open("w", encoding="utf-8") as sink, contextlib.redirect_stdout(sink):
        code = pytest.main(arguments, plugins=[Plugin()])
    if code in (pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.INTERNAL_ERROR, pytest.ExitCode.NO_TESTS_COLLECTED):
        msg = f"pytest {' '.join(request.tests)} ran no test ({pytest.ExitCode(code).name})"
        raise CannotRunError(msg)
    return ChildResult(signatures=tuple(_signatures(record)))


def _signatures(record: LaunchRecord) -> Iterator[KernelSignature]:
    """The first launch of each kernel."""
    seen = set()
    for launch in record.launches:
        if launch.location not in seen:
            seen.add(launch.location)
            with contextlib.suppress(TypeError):  # a constant that is neither a number, a text nor a dtype
                yield _signature(launch)


def _signature(launch: Launch) -> KernelSignature:
    types = launch.types
    if any(not kind.startswith(("*", "i", "u", "f", "bf")) for kind in types.values()):
        raise TypeError  # a tuple or a tensor descriptor
    return KernelSignature(
        name=launch.function.fn.__name__,
        file=str(Path(launch.function.fn.__code__.co_filename).resolve()),
        origin="recorded",
        types=types,
        constants={name: _plain(value) for name, value in launch.constants.items()},
        options={name: value for name, default in _DEFAULTS.items() if (value := launch.options[name]) != default},
    )


def _plain(value: Any) -> object:
    from triton.language import dtype

    value = getattr(value, "value", value)  # tl.constexpr
    if isinstance(value, dtype):
        return {"fp32": "tl.float32", "fp16": "tl.float16", "bf16": "tl.bfloat16"}.get(value.name) or f"tl.{value.name}"
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(value)
