"""The lanes of a race: processes that are set up together and timed one after the other."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.support import make_env, running, until
from tests.tune.test_engine import a_job as a_quick_job

from rocsolid.api.tune import _engine, _job
from rocsolid.catalog.profiles import resolve
from rocsolid.measure.process_race import Rules
from rocsolid.model.environment import Device
from rocsolid.model.platform import Platform
from rocsolid.model.study import TrialRecord
from rocsolid.probe.quick_facts import quick_environment
from rocsolid.tune.engine import VISIBLE, slots_of
from rocsolid.tune.final_race import run_finals
from rocsolid.tune.space import Narrowing, space_of
from rocsolid.tune.trials import Job, Resident, Room

WORKLOADS = Path(__file__).with_name("workloads.py")
FUSION = "process.TRITON_DEFAULT_FP_FUSION"
GB = 1 << 30


def a_job(folder: Path, **kwargs: object) -> Job:
    env = make_env(platform=Platform.CPU)
    said = Narrowing(fixed={"form": "eager"}, vary={FUSION: ("fast", "crash")})
    job = Job(workload=f"{WORKLOADS}:moody", space=space_of(resolve("safe", env), env, said), folder=folder)
    return replace(job, **kwargs)  # type: ignore[arg-type]


@pytest.mark.torch
def test_the_next_process_is_ready_when_its_turn_comes(tmp_path: Path) -> None:
    said: list[str] = []
    lane = Resident(a_job(tmp_path, at_once=2), {FUSION: "fast"}, "lane", said.append)
    assert said == ["starting lane, process 1", "starting lane, process 2"]
    assert lane.ready()
    times = [lane.sample()]
    lane.renew()
    assert len(said) == 2, "nothing had to be started"
    times.append(lane.sample())
    assert lane.processes == 2
    assert all(taken is not None and 1.0 < taken < 4.0 for taken in times)
    lane.renew()
    assert len(said) == 4, "two more, of which one is timed"
    assert lane.finish()["device"] == "CPU"
    assert lane.out == ""
    until(lambda: not running(str(tmp_path)))


@pytest.mark.torch
def test_those_that_wait_end_with_the_lane(tmp_path: Path) -> None:
    lane = Resident(a_job(tmp_path, at_once=2), {FUSION: "crash"}, "lane", lambda _: None)
    assert not lane.ready()
    assert "crashed" in lane.out
    assert lane.sample() is None
    lane.renew()
    assert lane.processes == 1, "it is out of the race"
    lane.cancel()
    until(lambda: not running(str(tmp_path)))


@pytest.mark.torch
def test_what_fails_for_want_of_room_is_tried_alone(tmp_path: Path) -> None:
    variables = {"LONELY": str(tmp_path / "lock")}
    job = a_job(tmp_path, at_once=2, workload=f"{WORKLOADS}:lonely", variables=variables)
    said: list[str] = []
    lane = Resident(job, {}, "lane", said.append)
    for life in range(2):
        if life:
            lane.renew()
        assert lane.ready(), lane.out
        assert lane.sample() is not None, lane.out
    lane.finish()
    lost = [line for line in said if line.startswith("lane could not be set up beside the others: ")]
    assert len(lost) == 1, said
    assert (lane.out, lane.processes) == ("", 2)
    until(lambda: not running(str(tmp_path)))


def measured(host: int, device: int) -> TrialRecord:
    return TrialRecord(number=0, name="start", choices={}, kind="measured", host_bytes=host, peak_bytes=device)


@pytest.mark.parametrize(
    ("room", "trial", "at_once"),
    [
        (Room(), measured(GB, 0), 1),  # nothing is known
        (Room(cores=64, host_bytes=512 * GB), measured(GB, 0), 1),  # no device: the cores are what is raced for
        (Room(cores=64, host_bytes=512 * GB, device_bytes=141 * GB), measured(4 * GB, GB), 4),
        (Room(cores=9, host_bytes=512 * GB, device_bytes=141 * GB), measured(4 * GB, GB), 3),
        (Room(cores=64, host_bytes=50 * GB, device_bytes=141 * GB), measured(4 * GB, GB), 2),
        (Room(cores=64, host_bytes=512 * GB, device_bytes=24 * GB), measured(4 * GB, GB), 2),
        (Room(cores=64, host_bytes=512 * GB, device_bytes=24 * GB), measured(4 * GB, 20 * GB), 1),
        (Room(cores=64, host_bytes=512 * GB, device_bytes=192 * GB, processes=8), measured(4 * GB, GB), 2),
    ],
)
def test_as_many_at_once_as_there_is_room_for(room: Room, trial: TrialRecord, at_once: int) -> None:
    assert room.at_once([trial, trial]) == at_once


def test_no_process_is_started_for_a_turn_that_never_comes(tmp_path: Path) -> None:
    trials = [TrialRecord(number=n, name=str(n), choices={FUSION: str(n)}, kind="measured") for n in (1, 2)]
    said: list[str] = []
    run_finals(
        replace(a_quick_job(tmp_path), at_once=4), trials, Rules(rounds=2, renew_every=1, drop=False), said.append
    )

    assert sum(word.startswith("starting") for word in said) == 3 * 2  # lanes, the control among them, and lives


def test_on_rocm_few_processes_share_a_device(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text("def build(): ...\n")
    rooms = []
    for platform in (Platform.ROCM, Platform.CUDA):
        env = make_env(platform)
        said = f"{tmp_path / 'work.py'}:build"
        job, _ = _job(said, resolve("safe", env), env, Narrowing(), tmp_path / "tune.db", None)
        rooms.append(job.room.processes)
    assert rooms == [8, 64]


@pytest.mark.parametrize(("platform", "hides"), [(Platform.ROCM, "-1"), (Platform.CUDA, "")])
def test_a_race_on_a_device_is_set_up_at_once_and_timed_by_its_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, platform: Platform, hides: str
) -> None:
    (tmp_path / "work.py").write_text("def build(): ...\n")
    monkeypatch.delenv(VISIBLE[platform], raising=False)
    device = Device(index=0, name="a chip", arch="sm_90", memory_bytes=100 * GB, platform=platform)
    other = replace(device, platform=Platform.CUDA if platform is Platform.ROCM else Platform.ROCM, memory_bytes=GB)
    env = make_env(platform, devices=(other, device))

    def asked() -> tuple[Job, str]:
        return _job(f"{tmp_path / 'work.py'}:build", resolve("safe", env), env, Narrowing(), tmp_path / "db", None)

    on_device, study = asked()
    assert _engine("local", replace(env, devices=(other, device, device)), 0, 1).slots == 2
    assert (on_device.turns, on_device.room.device_bytes) == (1, 100 * GB)
    monkeypatch.setenv(VISIBLE[platform], hides)
    on_host, another = asked()
    assert _engine("local", env, 0, 1).slots == 1
    assert (on_host.turns, on_host.room.device_bytes) == (8, 0)  # whose neighbours come and go
    assert study != another  # what was measured on the one says nothing of the other


def test_a_torch_built_for_a_device_that_is_not_here_is_tuned_as_on_a_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "work.py").write_text("def build(): ...\n")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    env = make_env(Platform.CUDA, devices=())

    def varied(*, driven: bool, elsewhere: bool = False) -> dict[str, tuple[object, ...]]:
        monkeypatch.setattr("rocsolid.api.tune.has_driver", lambda: driven)
        said = f"{tmp_path / 'work.py'}:build"
        job, _ = _job(said, resolve("fast", env), env, Narrowing(), tmp_path / "tune.db", None, elsewhere=elsewhere)
        return {knob.id: knob.values for knob in job.space.knobs}

    here = varied(driven=False)
    assert here["graph"] == (False,)
    assert not any(name.startswith(("process.", "inductor.triton.")) for name in here)
    unlisted = varied(driven=True)  # as on a Jetson
    assert unlisted["graph"] == (True, False)
    assert varied(driven=False, elsewhere=True) == unlisted
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert varied(driven=True) == here


@pytest.mark.gpu
def test_the_device_that_is_here_is_reckoned_with(tmp_path: Path) -> None:
    import torch

    (tmp_path / "work.py").write_text("def build(): ...\n")
    env = quick_environment()
    job, _ = _job(f"{tmp_path / 'work.py'}:build", resolve("safe", env), env, Narrowing(), tmp_path / "db", None)

    assert job.turns == 1
    assert job.room.device_bytes == pytest.approx(torch.cuda.get_device_properties(0).total_memory, rel=0.05)
    assert len(slots_of(env.platform, len(env.usable_devices))) == torch.cuda.device_count()
