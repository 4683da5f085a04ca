"""A workload with several ranks is one trial: all ranks have the same plan, and a rank that fails ends the trial."""

from pathlib import Path

import pytest
from tests.support import make_env, running, until

from rocsolid.catalog.profiles import resolve
from rocsolid.model.platform import Platform
from rocsolid.model.trial_result import Crashed
from rocsolid.tune.isolate.trial import run
from rocsolid.tune.space import Restrictions, build_space
from rocsolid.tune.trials import StudyConfig, VariantProcess

WORKLOAD = f"{Path(__file__).with_name('workloads.py')}:two_ranks"
FUSION = "process.TRITON_DEFAULT_FP_FUSION"


def make_config(folder: Path) -> StudyConfig:
    env = make_env(platform=Platform.CPU)
    restrictions = Restrictions(fixed={"form": "eager"}, vary={FUSION: ("fast", "crash")})
    return StudyConfig(
        workload=WORKLOAD, space=build_space(resolve("safe", env), env, restrictions), folder=folder, ranks=2
    )


@pytest.mark.torch
def test_all_ranks_use_the_variant(tmp_path: Path) -> None:
    process = VariantProcess(make_config(tmp_path), {FUSION: "fast"}, "variant", lambda _: None)
    taken = process.sample()
    machine = process.finish()

    assert process.failure == ""
    assert machine["device"] == "CPU"
    assert taken is not None
    assert 1.0 < taken < 4.0  # 4 ms if one rank did not have the value
    until(lambda: not running(str(tmp_path)))


@pytest.mark.torch
def test_failing_rank_ends_the_trial_with_its_reason(tmp_path: Path) -> None:
    crashed = run(make_config(tmp_path).trial_spec({FUSION: "crash"}), tmp_path / "crash")

    assert isinstance(crashed, Crashed), crashed
    assert "SIG" in crashed.reason, "the signal of the rank, or of rank 0 as a consequence"
    until(lambda: not running(str(tmp_path)))
