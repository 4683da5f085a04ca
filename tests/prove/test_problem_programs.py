"""Every program of a known problem runs here, on a stand-in for a GPU or for its child process, and refutes what a lie shows."""

import ctypes
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from tests.prove.fake_gpu import FakeGpu, fake_gpu
from tests.support import make_env

from rocsolid.catalog.chips import chip
from rocsolid.catalog.problems import problem
from rocsolid.model.environment import CheckStatus, Environment
from rocsolid.model.platform import Platform
from rocsolid.model.proof import ClaimResult, ClaimVerdict
from rocsolid.model.setting import Condition
from rocsolid.prove import gpu as gpu_checks
from rocsolid.prove import problems, runtime
from rocsolid.prove.check import Seen, Task, all_claims, load_checks

pytestmark = pytest.mark.torch
__all__ = ["fake_gpu"]
ROCM = make_env(Platform.ROCM)
CLAIMS = {claim.id: claim for claim in all_claims()}
PROGRAMS = {name.removeprefix("problem:") for name in load_checks() if name.startswith("problem:")}
OK, FAILED, HUNG, CRASHED = CheckStatus.OK, CheckStatus.FAILED, CheckStatus.HUNG, CheckStatus.CRASHED

# Programs that use torch in their own process.
IN_PROCESS = {
    "shared-graph-pool-corruption", "hip-graph-stale-host-write", "rdna4-large-graph-stale-pointers", "miopen-not-graph-safe",
    "blas-workspace-freed-under-graph", "hip-capture-errors-unreported", "rng-state-read-in-capture", "capture-stream-not-restored",
    "failed-capture-leaks-pool", "stale-capture-state", "mix-order-reduction-drops-gradients", "combo-kernels-wrong-on-rocm",
    "triton-rdna-barrier-miscompile",
}  # fmt: skip
# How the child process ends without the symptom, and with it.
CHILDREN: dict[str, tuple[tuple[CheckStatus, str], tuple[CheckStatus, str]]] = {
    "reduce-overhead-training-drift": ((OK, "1.0 1.0 1.0"), (FAILED, "1.0 1.0 3.0")),
    "hipblaslt-handle-in-capture": ((OK, "ok"), (FAILED, "RuntimeError: CUDA error: HIPBLAS_STATUS_NOT_INITIALIZED")),
    "rccl-watchdog-breaks-capture": ((OK, "ok"), (CRASHED, "SIGABRT")),
    "big-graph-instantiate-segfault": ((OK, "ok"), (CRASHED, "")),
    "mi350-repeated-graph-crash": ((OK, "ok"), (CRASHED, "")),
    "gc-frees-triton-kernel-in-capture": ((OK, ""), (OK, "Exception ignored in: <function Kernel.__del__>")),
    "triton-buffer-ops-wrong-on-and-off": ((OK, "1e-5"), (FAILED, "AssertionError")),
    "lds-overflow-at-launch": ((OK, "launched"), (OK, "OutOfResources out of resource: shared memory")),
    "max-autotune-many-shapes-gfx950": ((OK, "ok"), (FAILED, "hipErrorStreamCaptureInvalidated")),
    "expandable-segments-on-rocm": ((OK, "ok 8.0"), (HUNG, "")),
    "ipc-memory-leak": ((OK, "lost 0"), (FAILED, "AssertionError: lost 2147483648")),
    "legacy-ipc-mode-breaks-rdna": ((FAILED, "AssertionError: lost 2147483648"), (FAILED, "RuntimeError: invalid argument")),
    "hipblaslt-forced-on-consumer-gpu": ((OK, "ok"), (CRASHED, "")),
    "hipblaslt-jit-stall-on-rdna": ((OK, "0.2"), (FAILED, "AssertionError")),
}  # fmt: skip


def conditional_nodes(patch: pytest.MonkeyPatch, *, lies: bool) -> None:
    names = {} if lies else {"hipGraphConditionalHandleCreate": 1}
    patch.setattr(runtime, "loaded_library", lambda: "libamdhip64.so")
    patch.setattr(ctypes, "CDLL", lambda _: SimpleNamespace(**names))


def libraries(patch: pytest.MonkeyPatch, *, lies: bool) -> None:
    maps = "".join(f"7f00 r-xp /opt/{name}/libamd_smi.so\n" for name in ("rocm", "torch")[: 1 + lies])
    patch.setattr(problems, "Path", lambda _: SimpleNamespace(read_text=lambda **_: maps))


def profiled(patch: pytest.MonkeyPatch, *, lies: bool) -> None:
    class Profile:
        def __init__(self, **_: object) -> None: ...
        def __enter__(self) -> "Profile":
            return self

        def __exit__(self, *_: object) -> None: ...
        def key_averages(self) -> list[Any]:
            return [SimpleNamespace(key="vectorized_elementwise_kernel", count=87 if lies else 100)]

    patch.setattr(torch.profiler, "profile", Profile)


def replays(patch: pytest.MonkeyPatch, *, lies: bool) -> None:
    left = iter(["ok", "wrong"] if lies else ["ok", "ok"])
    patch.setattr(
        problems, "run_with_deadline", lambda _: SimpleNamespace(stdout=f'{{"status": "{next(left, "ok")}"}}')
    )


def numa(patch: pytest.MonkeyPatch, *, lies: bool) -> None:
    faults = iter([100, 2500])
    patch.setattr(problems, "system_number", lambda _, name="": next(faults) if name else int(lies))
    patch.setattr(problems, "longest_launch_ms", lambda _: 12.0)


def image(patch: pytest.MonkeyPatch, *, lies: bool) -> None:
    patch.setenv("TORCHINDUCTOR_MAX_AUTOTUNE", str(int(lies)))


def architecture(patch: pytest.MonkeyPatch, *, lies: bool) -> None:
    patch.setattr(problems, "child", lambda _, **env: (OK, "gfx906" if lies and env else "gfx942"))


OTHERS: dict[str, Callable[..., None]] = {
    "no-conditional-nodes-on-hip": conditional_nodes,
    "second-libamd-smi": libraries,
    "hip-graph-kernels-missing-from-profiles": profiled,
    "hip-graph-replay-corruption": replays,
    "numa-balancing-on": numa,
    "max-autotune-left-on-by-image": image,
    "gfx-version-override": architecture,
}
# The symptom exists on ROCm only: what refutes the statement is its absence there.
ONLY_ON_ROCM = {"fp8-type-differs-by-generation", "tunableop-enabled-also-tunes"}


def verdict(name: str, patch: pytest.MonkeyPatch, *, stated: bool = False) -> ClaimVerdict:
    """Run the whole program on a machine for which the catalogue states the problem, or does not."""
    when = Condition() if stated else Condition(platforms=frozenset({Platform.CUDA}))
    patch.setattr(problems, "known_problem", lambda _: replace(problem(name), when=when))
    (result,) = run(name, ROCM, f"problem:{name}")
    return result.verdict


def run(name: str, env: Environment, *claims: str) -> list[ClaimResult]:
    seen = load_checks()[f"problem:{name}"].program(
        Task(claims=tuple(CLAIMS[claim] for claim in claims), argument="", env=env)
    )
    assert not isinstance(seen, Seen)
    return list(seen)


def test_every_program_is_run_here() -> None:
    assert {*IN_PROCESS, *CHILDREN, *OTHERS, *ONLY_ON_ROCM} == PROGRAMS


@pytest.mark.parametrize("name", sorted(IN_PROCESS))
def test_a_program_on_a_lying_gpu(name: str, fake_gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    assert verdict(name, monkeypatch) is ClaimVerdict.NOT_APPLICABLE
    fake_gpu.lies = True
    assert verdict(name, monkeypatch) is ClaimVerdict.REFUTED


@pytest.mark.parametrize("name", CHILDREN)
def test_a_program_whose_child_shows_the_symptom(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for end, wanted in zip(CHILDREN[name], (ClaimVerdict.NOT_APPLICABLE, ClaimVerdict.REFUTED), strict=True):
        monkeypatch.setattr(problems, "child", lambda *_, end=end, **__: end)
        assert verdict(name, monkeypatch) is wanted


@pytest.mark.usefixtures("fake_gpu")
@pytest.mark.parametrize("name", OTHERS)
def test_a_program_that_sees_a_lie(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for lies, wanted in ((False, ClaimVerdict.NOT_APPLICABLE), (True, ClaimVerdict.REFUTED)):
        OTHERS[name](monkeypatch, lies=lies)
        assert verdict(name, monkeypatch) is wanted


@pytest.mark.parametrize(("tuning", "wanted"), [("True", ClaimVerdict.CONFIRMED), ("False", ClaimVerdict.REFUTED)])
def test_tunable_op_that_does_not_tune_is_refuted(
    tuning: str, wanted: ClaimVerdict, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(problems, "child", lambda *_, **__: (OK, f"True {tuning}"))
    assert verdict("tunableop-enabled-also-tunes", monkeypatch, stated=True) is wanted


@pytest.mark.parametrize(("types", "wanted"), [(("fnuz",), "confirmed"), (("fn", "fnuz"), "refuted"), ((), "refuted")])
def test_another_fp8_type_than_stated_is_refuted(
    types: tuple[str, ...], wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_checks, "this_chip", lambda: chip("gfx942"))
    monkeypatch.setattr(torch.version, "hip", "7.2")
    monkeypatch.setattr(
        problems, "child", lambda code, **_: (OK if any(f"e4m3{t})" in code for t in types) else FAILED, "")
    )
    assert verdict("fp8-type-differs-by-generation", monkeypatch, stated=True).value == wanted


def test_a_symptom_elsewhere_does_not_refute_what_only_shares_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    name, other = "reduce-overhead-training-drift", "setting:compile.mode/harmful:reduce-overhead"
    monkeypatch.setattr(problems, "child", lambda *_, **__: (FAILED, "1.0 1.0 3.0"))
    rows = run(name, make_env(Platform.CUDA), f"problem:{name}", other)

    assert [row.verdict.value for row in rows] == ["refuted", "could not run"]


@pytest.mark.usefixtures("fake_gpu")
def test_numbers_of_the_system_and_launches(tmp_path: Path) -> None:
    file = tmp_path / "vmstat"
    file.write_text("numa_hint_faults_local 3\nnuma_hint_faults 25\n")

    assert problems.system_number(str(file), "numa_hint_faults") == 25
    assert problems.system_number(str(file), "other") == problems.system_number(str(tmp_path / "none")) == 0
    assert problems.longest_launch_ms(0.1) > 0
