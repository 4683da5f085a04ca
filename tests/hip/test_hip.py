"""The real HIP runtimes behave as the table says, and show the problems that users reported: `make test-hip`."""

import json
import os
import signal
from typing import Any

import pytest
from tests.hip.debian import Unreachable
from tests.hip.record import FOLDER
from tests.hip.rig import LIBRARIES, MODES, Rig, make, missing_tool
from tests.support import make_env

from rocsolid.catalog.capture_errors import meaning_of, meaning_of_code
from rocsolid.catalog.capture_rules import CAPTURE_RULES
from rocsolid.catalog.problems import problem
from rocsolid.model.capture_report import Reason
from rocsolid.model.capture_rule import CaptureMode, Runtime
from rocsolid.prove.capture_answers import agrees

pytestmark = pytest.mark.skipif(os.environ.get("ROCSOLID_HIP") != "1", reason="the HIP rig is opt-in: make test-hip")


@pytest.fixture(scope="module")
def rig() -> Rig:
    if missing := missing_tool():
        pytest.skip(missing)
    try:
        made = make(FOLDER)
    except Unreachable as error:
        pytest.skip(f"Debian's newer suites cannot be reached: {error}")
    print("packages:", json.dumps(made.versions))  # noqa: T201 - for the test log
    return made


def run_scenario(rig: Rig, runtime: str, *scenario: str, stack_kb: int = 8192) -> Any:
    """The result of a scenario, or the signal that ended it."""
    done = rig.run("chains.py", LIBRARIES[runtime], rig.kernel, *scenario, stack_kb=stack_kb)
    return json.loads(done.stdout) if done.returncode == 0 else -done.returncode


def test_the_runtimes_are_the_releases_of_the_table(rig: Rig) -> None:
    for runtime, package in ((Runtime.HIP_6_4, "libamdhip64-6"), (Runtime.HIP_7_2, "libamdhip64-7")):
        assert rig.versions[package].startswith(runtime.label.removeprefix("HIP ")), (
            f"Debian now has {rig.versions[package]}: measure again (python -m tests.hip.record) and add it to the table"
        )


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("runtime", LIBRARIES)
def test_the_runtime_behaves_as_the_table_says(rig: Rig, runtime: str, mode: str) -> None:
    rules = {rule.id: rule for rule in CAPTURE_RULES}
    seen = list(rig.measure(runtime, mode, list(rules)))

    assert [result["case"] for result in seen] == list(rules)
    wrong = [a for a in seen if not agrees(rules[a["case"]].behavior(Runtime(runtime), CaptureMode(mode)), a)]
    assert not wrong, rig.versions


@pytest.mark.parametrize("runtime", LIBRARIES)
@pytest.mark.parametrize("launches", [1, 64, 1000])
def test_as_many_kernels_reach_the_chip_as_were_captured(rig: Rig, runtime: str, launches: int) -> None:
    assert run_scenario(rig, runtime, "replay", str(launches)) == {"nodes": launches, "kernels": launches}


@pytest.mark.parametrize("runtime", LIBRARIES)
def test_a_stream_stays_invalidated_until_its_next_capture(rig: Rig, runtime: str) -> None:
    """Reported as rocm-systems#6509. What `rs.capture` does afterwards clears it; other streams are not affected."""
    assert run_scenario(rig, runtime, "after-refusal") == {
        "refused": 900,
        "ended": 901,
        "state": "invalidated",
        "captured again": -1,
        "state at last": "none",
        "waits": 0,
        "elsewhere": -1,
    }
    release = Runtime(runtime).label.removeprefix("HIP ")
    assert problem("stale-capture-state").applies(make_env(rocm=release))


@pytest.mark.parametrize("runtime", LIBRARIES)
def test_a_stream_with_unjoined_work_becomes_unusable_and_new_ones_work(rig: Rig, runtime: str) -> None:
    """Reported as NVIDIA/warp#1957."""
    seen = run_scenario(rig, runtime, "unjoined")

    assert seen == {"ended": 904, "state": "active", "again": 401, "joined by waiting": "active", "elsewhere": -1}
    assert meaning_of_code(904).cause is meaning_of_code(401).cause is Reason.UNJOINED
    assert run_scenario(rig, runtime, "unjoined-ended-twice") == {"ended": 908, "state": "active"}
    assert run_scenario(rig, runtime, "unjoined-read") in (signal.SIGSEGV, signal.SIGBUS)


@pytest.mark.parametrize(
    ("elsewhere", "error", "cause"), [("0", 900, Reason.HOST_SYNC), ("1", 906, Reason.DEFAULT_STREAM)]
)
def test_a_hipblaslt_handle_created_in_a_capture_ends_the_process(
    rig: Rig, elsewhere: str, error: int, cause: Reason
) -> None:
    """Reported as rocm-libraries#11838 and aiter#4352, with these messages."""
    ended = rig.run("chains.py", LIBRARIES["hip-7.2"], rig.kernel, "first-handle", elsewhere)

    assert ended.returncode != 0
    assert ended.stdout == '{"before": 0}\n'
    message = next(line for line in ended.stderr.splitlines() if "hipblaslt.cpp" in line)
    assert f"({error}) at " in message
    meaning = meaning_of(message)
    assert meaning is not None
    assert meaning.cause is cause
    known = problem("hipblaslt-handle-in-capture")
    assert known.applies(make_env(torch="2.13.0"))
    assert "(900)" in known.symptom


@pytest.mark.parametrize(
    ("runtime", "nodes", "stack_kb", "lives"),
    [
        ("hip-6.4", 25_000, 8192, True),
        ("hip-7.2", 20_000, 8192, True),
        ("hip-7.2", 25_000, 8192, False),
        ("hip-7.2", 25_000, 65536, True),
    ],
)
def test_a_long_chain_overflows_the_stack_of_hip_7_2(
    rig: Rig, runtime: str, nodes: int, stack_kb: int, *, lives: bool
) -> None:
    """Reported as pytorch#155720; a larger stack is the fix in the known problem."""
    seen = run_scenario(rig, runtime, "replay", str(nodes), stack_kb=stack_kb)

    assert seen == ({"nodes": nodes, "kernels": nodes} if lives else signal.SIGSEGV)
    known = problem("big-graph-instantiate-segfault")
    assert known.applies(make_env(rocm="7.2.4"))
    assert not known.applies(make_env(rocm="6.4.3"))
    assert "20,000" in known.fix
    assert "ulimit -s 65536" in known.fix
