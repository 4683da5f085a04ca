"""What `rs.capture` does differently on a platform comes from conditions of the catalogue."""

import pytest
from tests.support import make_env

from rocsolid.catalog.capture_precautions import (
    POOL_PER_GRAPH,
    WARM_UP_ON_CAPTURE_STREAM,
    Precautions,
    precautions_for,
)
from rocsolid.model.platform import Platform


@pytest.mark.parametrize("platform", [Platform.CUDA, Platform.CPU])
def test_cuda_and_cpu_need_no_precautions(platform: Platform) -> None:
    assert precautions_for(make_env(platform)) == Precautions()


def test_rocm_has_one_pool_per_graph_and_warms_up_on_the_capture_stream() -> None:
    found = precautions_for(make_env(rocm="6.4.3", torch="2.9.0"))

    assert found == Precautions(pool_per_graph=True, warm_up_on_capture_stream=True)
    assert POOL_PER_GRAPH.evidence
    assert WARM_UP_ON_CAPTURE_STREAM.evidence


def test_known_problems_add_checks_a_child_process_and_a_warning() -> None:
    assert precautions_for(make_env(rocm="7.2.1")).min_verify_rounds == 2
    assert precautions_for(make_env(torch="2.12.0")).try_in_child
    warning = precautions_for(make_env(rocm="7.0.2", torch="2.11.0")).collectives_warning
    assert "the process-group watchdog queries an event" in warning
