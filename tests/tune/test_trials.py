"""The processes of a race: set up together, timed one after the other; and what the machine decides about them."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.support import make_env, running, until
from tests.tune.test_engine import make_config as make_fake_config

from rocsolid.api.tune import _make_engine, _study_config
from rocsolid.catalog.profiles import resolve
from rocsolid.catalog.tuning import VISIBLE_DEVICES
from rocsolid.measure.process_race import RaceOptions
from rocsolid.model.environment import Device
from rocsolid.model.platform import Platform
from rocsolid.model.study import TrialRecord
from rocsolid.probe.quick_facts import quick_environment
from rocsolid.tune.engine import gpu_slots
from rocsolid.tune.final_race import run_final_race
from rocsolid.tune.space import Restrictions, build_space
from rocsolid.tune.trials import Capacity, StudyConfig, VariantProcess

WORKLOADS = Path(__file__).with_name("workloads.py")
FUSION = "process.TRITON_DEFAULT_FP_FUSION"
GB = 1 << 30


def make_config(folder: Path, **kwargs: object) -> StudyConfig:
    env = make_env(platform=Platform.CPU)
    restrictions = Restrictions(fixed={"form": "eager"}, vary={FUSION: ("fast", "crash")})
    config = StudyConfig(
        workload=f"{WORKLOADS}:switchable", space=build_space(resolve("safe", env), env, restrictions), folder=folder
    )
    return replace(config, **kwargs)  # type: ignore[arg-type]


@pytest.mark.torch
def test_next_process_is_set_up_before_the_restart(tmp_path: Path) -> None:
    statuses: list[str] = []
    process = VariantProcess(make_config(tmp_path, parallel_setups=2), {FUSION: "fast"}, "variant", statuses.append)
    assert statuses == ["starting variant, process 1", "starting variant, process 2"]
    assert process.ready()
    times = [process.sample()]
    process.restart()
    assert len(statuses) == 2, "the next process was already set up"
    times.append(process.sample())
    assert process.processes == 2
    assert all(taken is not None and 1.0 < taken < 4.0 for taken in times)
    process.restart()
    assert len(statuses) == 4, "two more processes, of which one is timed"
    assert process.finish()["device"] == "CPU"
    assert process.failure == ""
    until(lambda: not running(str(tmp_path)))


@pytest.mark.torch
def test_waiting_processes_end_with_the_variant(tmp_path: Path) -> None:
    process = VariantProcess(make_config(tmp_path, parallel_setups=2), {FUSION: "crash"}, "variant", lambda _: None)
    assert not process.ready()
    assert "crashed" in process.failure
    assert process.sample() is None
    process.restart()
    assert process.processes == 1, "a variant that failed is not restarted"
    process.cancel()
    until(lambda: not running(str(tmp_path)))


@pytest.mark.torch
def test_process_that_fails_in_a_parallel_setup_is_set_up_alone(tmp_path: Path) -> None:
    variables = {"EXCLUSIVE_LOCK": str(tmp_path / "lock")}
    config = make_config(tmp_path, parallel_setups=2, workload=f"{WORKLOADS}:exclusive", variables=variables)
    statuses: list[str] = []
    process = VariantProcess(config, {}, "variant", statuses.append)
    for number in range(2):
        if number:
            process.restart()
        assert process.ready(), process.failure
        assert process.sample() is not None, process.failure
    process.finish()
    lost = [line for line in statuses if line.startswith("variant could not be set up in parallel, retrying alone: ")]
    assert len(lost) == 1, statuses
    assert (process.failure, process.processes) == ("", 2)
    until(lambda: not running(str(tmp_path)))


def measured(host: int, device: int) -> TrialRecord:
    return TrialRecord(number=0, name="baseline", choices={}, kind="measured", host_bytes=host, peak_bytes=device)


@pytest.mark.parametrize(
    ("capacity", "trial", "expected"),
    [
        (Capacity(), measured(GB, 0), 1),  # nothing is known
        (Capacity(cores=64, host_bytes=512 * GB), measured(GB, 0), 1),  # no GPU: the processes compete for the cores
        (Capacity(cores=64, host_bytes=512 * GB, device_bytes=141 * GB), measured(4 * GB, GB), 4),
        (Capacity(cores=9, host_bytes=512 * GB, device_bytes=141 * GB), measured(4 * GB, GB), 3),
        (Capacity(cores=64, host_bytes=50 * GB, device_bytes=141 * GB), measured(4 * GB, GB), 2),
        (Capacity(cores=64, host_bytes=512 * GB, device_bytes=24 * GB), measured(4 * GB, GB), 2),
        (Capacity(cores=64, host_bytes=512 * GB, device_bytes=24 * GB), measured(4 * GB, 20 * GB), 1),
        (Capacity(cores=64, host_bytes=512 * GB, device_bytes=192 * GB, processes=8), measured(4 * GB, GB), 2),
    ],
)
def test_number_of_parallel_setups_follows_from_the_capacity(
    capacity: Capacity, trial: TrialRecord, expected: int
) -> None:
    assert capacity.parallel_setups([trial, trial]) == expected


def test_no_process_is_started_that_would_never_be_used(tmp_path: Path) -> None:
    trials = [TrialRecord(number=n, name=str(n), choices={FUSION: str(n)}, kind="measured") for n in (1, 2)]
    statuses: list[str] = []
    run_final_race(
        replace(make_fake_config(tmp_path), parallel_setups=4),
        trials,
        RaceOptions(rounds=2, restart_every=1, eliminate=False),
        statuses.append,
    )

    assert (
        sum(word.startswith("starting") for word in statuses) == 3 * 2
    )  # two variants and the control, two processes each


def test_at_most_eight_processes_share_a_gpu_on_rocm(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text("def build(): ...\n")
    limits = []
    for platform in (Platform.ROCM, Platform.CUDA):
        env = make_env(platform)
        workload = f"{tmp_path / 'work.py'}:build"
        config, _ = _study_config(workload, resolve("safe", env), env, Restrictions(), tmp_path / "tune.db", None)
        limits.append(config.capacity.processes)
    assert limits == [8, 64]


@pytest.mark.parametrize(("platform", "hides"), [(Platform.ROCM, "-1"), (Platform.CUDA, "")])
def test_visible_gpus_decide_turns_capacity_and_study_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, platform: Platform, hides: str
) -> None:
    (tmp_path / "work.py").write_text("def build(): ...\n")
    monkeypatch.delenv(VISIBLE_DEVICES[platform], raising=False)
    device = Device(index=0, name="a chip", arch="sm_90", memory_bytes=100 * GB, platform=platform)
    other = replace(device, platform=Platform.CUDA if platform is Platform.ROCM else Platform.ROCM, memory_bytes=GB)
    env = make_env(platform, devices=(other, device))

    def make() -> tuple[StudyConfig, str]:
        return _study_config(
            f"{tmp_path / 'work.py'}:build", resolve("safe", env), env, Restrictions(), tmp_path / "db", None
        )

    on_device, study = make()
    assert _make_engine("local", replace(env, devices=(other, device, device)), 0, 1).parallel_trials == 2
    assert (on_device.turns, on_device.capacity.device_bytes) == (1, 100 * GB)
    monkeypatch.setenv(VISIBLE_DEVICES[platform], hides)
    on_host, another = make()
    assert _make_engine("local", env, 0, 1).parallel_trials == 1
    assert (on_host.turns, on_host.capacity.device_bytes) == (8, 0)
    assert study != another  # a time on the GPU and one on the host must not be mixed


def test_gpu_build_of_torch_without_a_gpu_is_tuned_as_on_the_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "work.py").write_text("def build(): ...\n")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    env = make_env(Platform.CUDA, devices=())

    def varied(*, has_driver: bool, remote: bool = False) -> dict[str, tuple[object, ...]]:
        monkeypatch.setattr("rocsolid.api.tune.has_driver", lambda: has_driver)
        workload = f"{tmp_path / 'work.py'}:build"
        config, _ = _study_config(
            workload, resolve("fast", env), env, Restrictions(), tmp_path / "tune.db", None, remote=remote
        )
        return {knob.id: knob.values for knob in config.space.knobs}

    here = varied(has_driver=False)
    assert here["graph"] == (False,)
    gpu_only = [name for name in here if name.startswith(("process.", "inductor.triton."))]
    assert gpu_only in ([], ["process.OMP_NUM_THREADS"])  # the number of threads is varied on the CPU
    unlisted = varied(has_driver=True)  # as on a Jetson, where the GPU is not listed
    assert unlisted["graph"] == (True, False)
    assert varied(has_driver=False, remote=True) == unlisted
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert varied(has_driver=True) == here


@pytest.mark.gpu
def test_real_gpu_decides_turns_capacity_and_slots(tmp_path: Path) -> None:
    import torch

    (tmp_path / "work.py").write_text("def build(): ...\n")
    env = quick_environment()
    config, _ = _study_config(
        f"{tmp_path / 'work.py'}:build", resolve("safe", env), env, Restrictions(), tmp_path / "db", None
    )

    assert config.turns == 1
    assert config.capacity.device_bytes == pytest.approx(torch.cuda.get_device_properties(0).total_memory, rel=0.05)
    assert len(gpu_slots(env.platform, len(env.usable_devices))) == torch.cuda.device_count()
