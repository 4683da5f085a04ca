"""A workload of several ranks is one trial: the same plan on each, and one that fails ends all with its own reason."""

from pathlib import Path

import pytest
from tests.support import make_env, running, until

from rocsolid.catalog.profiles import resolve
from rocsolid.model.platform import Platform
from rocsolid.model.trial_result import Crashed
from rocsolid.tune.isolate.trial import run
from rocsolid.tune.space import Narrowing, space_of
from rocsolid.tune.trials import Job, Resident

WORKLOAD = f"{Path(__file__).with_name('workloads.py')}:two_ranks"
FUSION = "process.TRITON_DEFAULT_FP_FUSION"


def a_job(folder: Path) -> Job:
    env = make_env(platform=Platform.CPU)
    said = Narrowing(fixed={"form": "eager"}, vary={FUSION: ("fast", "crash")})
    return Job(workload=WORKLOAD, space=space_of(resolve("safe", env), env, said), folder=folder, ranks=2)


@pytest.mark.torch
def test_all_ranks_have_the_plan_and_take_the_time_of_the_slowest(tmp_path: Path) -> None:
    lane = Resident(a_job(tmp_path), {FUSION: "fast"}, "lane", lambda _: None)
    taken = lane.sample()
    where = lane.finish()

    assert lane.out == ""
    assert where["device"] == "CPU"
    assert taken is not None
    assert 1.0 < taken < 4.0  # had one of them not had the value, it would be four
    until(lambda: not running(str(tmp_path)))


@pytest.mark.torch
def test_a_rank_that_fails_ends_the_trial_with_its_own_reason(tmp_path: Path) -> None:
    crashed = run(a_job(tmp_path).errand({FUSION: "crash"}), tmp_path / "crash")

    assert isinstance(crashed, Crashed), crashed
    assert "SIG" in crashed.reason, "by the rank's signal, or by what that did to the first rank"
    until(lambda: not running(str(tmp_path)))
