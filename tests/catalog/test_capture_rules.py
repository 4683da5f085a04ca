"""The capture-rule table: complete, readable, and equal to what was measured with the runtimes."""

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.support import ROOT, make_env

import rocsolid as rs
from rocsolid.api.explain import explain
from rocsolid.catalog.capture_rules import (
    CAPTURE_RULES,
    EVIDENCE_BY_RUNTIME,
    capture_rule,
    describe_behavior,
    find_capture_rule,
    nearest_runtime,
    rules_of,
    runtimes_on,
)
from rocsolid.catalog.problems import all_problems
from rocsolid.catalog.profiles import resolve
from rocsolid.catalog.runtime_errors import RUNTIME_ERRORS, runtime_error
from rocsolid.model.capture_rule import Behavior, CaptureMode, Outcome, Runtime
from rocsolid.model.finding import Finding
from rocsolid.model.platform import Platform
from rocsolid.prove.capture_answers import agrees as recorded_as
from rocsolid.prove.capture_answers import run_cases, word
from rocsolid.report.capture_rules import table_page
from rocsolid.rules.engine import check_environment

RELEASES = {"6.4.3": Runtime.HIP_6_4, "7.2.4": Runtime.HIP_7_2}
# The names of our cases in the stored experiment; `T:` before a name means that the call came from another thread.
CASES = {
    "hipMalloc": "malloc",
    "hipFreeReal": "free",
    "hipHostMalloc": "host-malloc",
    "hipMallocAsync": "malloc-async",
    "hipMemGetInfo": "mem-get-info",
    "hipMemcpySyncD2H": "memcpy",
    "hipMemcpyAsync_pageable_D2H": "memcpy-to-pageable",
    "hipMemcpyAsync_pinned_D2H": "memcpy-to-pinned",
    "hipMemcpyAsync_pageable_H2D": "memcpy-from-pageable",
    "hipMemset": "memset",
    "hipMemsetAsync": "memset-async",
    "hipStreamSynchronize": "stream-synchronize",
    "hipStreamSynchronize_other": "stream-synchronize-other",
    "hipDeviceSynchronize": "device-synchronize",
    "hipStreamQuery": "stream-query",
    "hipStreamQuery_other": "stream-query-other",
    "hipEventQuery_precapture": "event-query-old",
    "hipEventRecord_then_Query": "event-query-captured",
    "hipEventSynchronize_captured": "event-synchronize-captured",
    "null_stream_launch": "launch-default-stream",
    "blocking_stream_launch": "launch-blocking-stream",
    "other_stream_launch": "launch-other-stream",
    "unjoined_fork": "fork-unjoined",
    "joined_fork": "fork-joined",
    "wait_uncaptured_event": "wait-uncaptured-event",
    "hipModuleLoadData": "module-load",
    "hipEventCreate": "event-create",
    "hipStreamCreate": "stream-create",
    "hipLaunchHostFunc": "launch-host-func",
    "hipStreamAddCallback": "stream-add-callback",
}


def stored(file: str) -> Any:
    """A file of `$HIP_DATA`, or of the folder `shared` next to the checkout."""
    named = os.environ.get("HIP_DATA")
    folders = [Path(named)] if named else [folder / "shared/data/hip" for folder in (ROOT.parent, ROOT)]
    found = next((folder / file for folder in folders if (folder / file).is_file()), None)
    if found is None:
        pytest.skip(f"{file} is missing: set HIP_DATA to the folder with the measurements")
    return json.loads(found.read_text())


def numbered(name: str) -> int:
    return next(error.number for error in RUNTIME_ERRORS if error.hip == name)


def agrees(behavior: Behavior, seen: dict[str, Any] | None) -> bool:
    """Whether a cell agrees with what was measured; a process that died had unjoined work."""
    if seen is None:
        return behavior.outcome is Outcome.FAILS_AT_END
    if seen["ret"] != "hipSuccess":
        assert (seen["status"], seen["end"]) == ("Invalidated", "hipErrorStreamCaptureInvalidated"), seen
        return behavior == Behavior(outcome=Outcome.CAPTURE_FAILS, error=numbered(seen["ret"]))
    assert (seen["status"], seen["end"]) == ("Active", "hipSuccess"), seen
    recorded = seen["nodes"] > 1  # one kernel is in every capture
    return behavior.outcome in ((Outcome.RECORDED,) if recorded else (Outcome.RUNS_NOW, Outcome.LEFT_OUT))


def test_the_table_agrees_with_the_stored_experiment() -> None:
    seen = set()
    for row in stored("hip_capture_matrix.json"):
        if row["op"] == "none":
            continue
        op = row["op"].removeprefix("T:")
        case = ("thread-" if op != row["op"] else "") + CASES[op]
        runtime, mode = RELEASES[row["version"]], CaptureMode(row["mode"])
        behavior = capture_rule(case).behavior(runtime, mode)
        assert behavior.outcome is Outcome.UNKNOWN or agrees(behavior, row["result"]), (row, behavior)
        seen.add((case, runtime, mode))

    assert len(seen) >= 35 * 2 * 3 - 2
    known = {
        (rule.id, runtime, mode)
        for rule in CAPTURE_RULES
        for runtime in RELEASES.values()
        for mode in CaptureMode
        if rule.behavior(runtime, mode).outcome is not Outcome.UNKNOWN
    }
    assert seen <= known


def test_the_hip_columns_agree_with_the_evidence_record() -> None:
    """`make test-hip` measures them again."""
    record = json.loads((ROOT / "evidence/capture-rules-on-hip.json").read_text())
    assert record["packages"]["libamdhip64-6"].startswith("6.4.3")
    assert record["packages"]["libamdhip64-7"].startswith("7.2.4")
    for rule in CAPTURE_RULES:
        for runtime in RELEASES.values():
            for mode in CaptureMode:
                seen = record["answers"][runtime.value][mode.value][rule.id]
                behavior = rule.behavior(runtime, mode)
                assert behavior.outcome is not Outcome.UNKNOWN
                assert recorded_as(behavior, seen), (rule.id, runtime, mode, seen)


def test_the_cuda_column_agrees_with_the_evidence_record() -> None:
    """scripts/measure_capture_rules.py measures it again on a GPU."""
    record = json.loads((ROOT / "evidence/capture-rules-on-cuda.json").read_text())
    assert record["device"] == "NVIDIA H200"
    assert f"CUDA {record['runtime']['CUDA']}" == Runtime.CUDA.label
    for rule in CAPTURE_RULES:
        for mode in CaptureMode:
            seen = record["answers"]["cuda"][mode.value][rule.id]
            behavior = rule.behavior(Runtime.CUDA, mode)
            assert (behavior.outcome is Outcome.UNKNOWN) is ("died" in seen), rule.id
            assert recorded_as(behavior, seen), (rule.id, mode, seen)


@pytest.mark.parametrize(
    ("seen", "read"),
    [
        ({"returned": 0, "state": "active", "ended": 0, "nodes": 2}, "node"),
        ({"returned": 0, "state": "active", "ended": 0, "nodes": 1}, "pass"),
        ({"returned": 0, "state": "none", "nodes": 1}, "pass"),
        ({"returned": 0, "state": "active", "ended": 904}, "end904"),
        ({"returned": 900, "state": "invalidated", "ended": 901}, "900"),
        ({"returned": 908, "state": "none"}, "908"),
        ({"returned": 401, "state": "active", "ended": 0, "nodes": 1}, "kept401"),
        ({"died": -11, "said": ""}, "died"),
        ({"returned": 0, "state": "invalidated", "ended": 901}, "odd"),
    ],
)
def test_a_measurement_is_translated_into_the_words_of_the_table(seen: dict[str, Any], read: str) -> None:
    assert word(seen) == read


def test_a_case_that_dies_or_hangs_is_reported_and_the_rest_still_run() -> None:
    ends = {"dies": (-11, ""), "leaves a stream capturing": (0, "x")}

    def start(left: Sequence[str]) -> "subprocess.CompletedProcess[str]":
        printed: list[str] = []
        for case in left:
            if case == "hangs":
                raise subprocess.TimeoutExpired([], 2, output="".join(printed))
            code, answer = ends.get(case, (0, "x"))
            printed += [json.dumps({"case": case}) + "\n"] if answer else []
            if case in ends:
                return subprocess.CompletedProcess([], code, "".join(printed), "said")
        return subprocess.CompletedProcess([], 0, "".join(printed), "")

    seen = list(run_cases(start, ["a", "dies", "b", "leaves a stream capturing", "hangs", "c"]))

    assert [(row["case"], *sorted(row.keys() - {"case"})) for row in seen] == [
        ("a",),
        ("dies", "died", "said"),
        ("b",),
        ("leaves a stream capturing",),
        ("hangs", "hung", "said"),
        ("c",),
    ]


@pytest.mark.parametrize(("file", "lacks"), [("hip_errors_6.json", {909, 911, 912}), ("hip_errors_7.json", {909})])
def test_error_names_and_texts_are_those_of_the_library(file: str, lacks: set[int]) -> None:
    library = stored(file)
    for error in RUNTIME_ERRORS:
        if error.number not in lacks:
            assert library[str(error.number)] == [error.hip, error.hip_text or error.text]
    assert not any(str(number) in library for number in lacks)
    assert {int(number) for number in library if 900 <= int(number) <= 999} <= {e.number for e in RUNTIME_ERRORS}


def test_the_table_is_complete_and_every_failure_has_an_error() -> None:
    assert len(CAPTURE_RULES) >= 35
    assert len({rule.id for rule in CAPTURE_RULES}) == len(CAPTURE_RULES)
    for rule in CAPTURE_RULES:
        assert rule.fix, rule.id
        for runtime in Runtime:
            for mode in CaptureMode:
                behavior = rule.behavior(runtime, mode)
                assert (behavior.fails or behavior.outcome is Outcome.CALL_FAILS) == bool(behavior.error), rule.id
                if behavior.error:
                    error = runtime_error(behavior.error)
                    assert error is not None
                    assert error.name(runtime), rule.id
    assert all(EVIDENCE_BY_RUNTIME[runtime] for runtime in Runtime)


def test_hip_releases_and_cuda_differ_where_users_had_problems() -> None:
    """RCCL's watchdog queries an old event: HIP 6.4 allows it, 7.2 does not. HIP drops a wait for an outside event."""
    query, wait = capture_rule("event-query-old"), capture_rule("wait-uncaptured-event")
    local = CaptureMode.THREAD_LOCAL

    assert query.behavior(Runtime.HIP_6_4, local).outcome is Outcome.RUNS_NOW
    assert query.behavior(Runtime.HIP_7_2, local).error == 900
    assert wait.behavior(Runtime.HIP_7_2, local).outcome is Outcome.LEFT_OUT
    assert wait.behavior(Runtime.CUDA, local).error == 905


@pytest.mark.parametrize("name", ["hipEventQuery", "cudaEventQuery", "torch.cuda.Event.query"])
def test_explain_accepts_every_name_of_a_call(name: str) -> None:
    page = explain(name)

    assert page.startswith("# hipEventQuery during a capture\n")
    assert (
        "- HIP 7.2.4: in global and thread_local mode it fails, and the capture fails "
        "(hipErrorStreamCaptureUnsupported, 900); in relaxed mode it runs immediately" in page
    )
    assert (
        "- HIP 6.4.3 and HIP 7.2.4: in every mode it fails, and the capture fails (hipErrorCapturedEvent, 907)" in page
    )
    assert "- fix: record and query events outside the captured function" in page


def test_a_row_is_described_in_one_sentence() -> None:
    assert describe_behavior("event-query-old") == (
        "hipEventQuery of an event recorded before the capture: HIP 6.4.3 allows it; "
        "HIP 7.2.4 and CUDA 13.0 refuse it with error 900, and the capture fails"
    )
    assert describe_behavior("wait-uncaptured-event", (Runtime.HIP_7_2,)) == (
        "hipStreamWaitEvent for an event of a stream outside the capture: "
        "HIP 7.2.4 accepts it, but the graph does not contain it"
    )
    assert describe_behavior("event-query-old", mode=CaptureMode.RELAXED).endswith("CUDA 13.0 allow it")


@pytest.mark.parametrize(
    ("platform", "release", "runtimes", "simulated"),
    [
        (Platform.ROCM, "7.2.1", (Runtime.HIP_7_2,), Runtime.HIP_7_2),
        (Platform.ROCM, "6.4", (Runtime.HIP_6_4,), Runtime.HIP_6_4),
        (Platform.ROCM, "7.0.2", (Runtime.HIP_6_4, Runtime.HIP_7_2), Runtime.HIP_7_2),
        (Platform.ROCM, "6.3.1", (Runtime.HIP_6_4, Runtime.HIP_7_2), Runtime.HIP_6_4),
        (Platform.CUDA, "", (Runtime.CUDA,), Runtime.CUDA),
        (Platform.CPU, "", (), Runtime.HIP_7_2),
    ],
)
def test_the_rows_and_the_simulated_runtime_of_a_machine(
    platform: Platform, release: str, runtimes: tuple[Runtime, ...], simulated: Runtime
) -> None:
    assert runtimes_on(platform, release) == runtimes
    assert nearest_runtime(platform, release) is simulated


def test_a_known_problem_lists_the_behavior_of_this_machines_runtime() -> None:
    """The watchdog's query is allowed by HIP 6.4 and refused by 7.2; for a release between them both are listed."""
    why = {
        release: next(f.why for f in findings_for(release) if f.subject == "rccl-watchdog-breaks-capture")
        for release in ("7.0.2", "7.2.0")
    }

    assert "before the capture, from another thread: HIP 6.4.3 allows it; HIP 7.2.4 refuses it" in why["7.0.2"]
    assert "before the capture, from another thread: HIP 7.2.4 refuses it with error 900" in why["7.2.0"]
    assert all(find_capture_rule(call) for problem in all_problems() for call in problem.calls)
    assert "## What HIP and CUDA do with the calls involved\n- hipEventQuery of" in explain(
        "rccl-watchdog-breaks-capture"
    )


def findings_for(release: str) -> list[Finding]:
    env = make_env(rocm=release, torch="2.11.0")
    return check_environment(env, resolve("safe", env))


def test_a_lint_finding_lists_the_behavior_of_every_runtime(tmp_path: Path) -> None:
    text = "import torch\nwith torch.cuda.graph(torch.cuda.CUDAGraph()):\n    {}\n"
    for line, behavior, call in (
        ("x.item()", "HIP 6.4.3, HIP 7.2.4 and CUDA 13.0 refuse it with error 900", "hipStreamSynchronize"),
        ("event.query()", "HIP 6.4.3 allows it; HIP 7.2.4 and CUDA 13.0 refuse it", "hipEventQuery"),
        ("event.synchronize()", "HIP 6.4.3, HIP 7.2.4 and CUDA 13.0 refuse it with error 907", "hipEventSynchronize"),
        ("torch.cuda.synchronize()", "HIP 6.4.3, HIP 7.2.4 and CUDA 13.0 refuse it", "hipDeviceSynchronize"),
        ("if x.any(): pass", "HIP 6.4.3, HIP 7.2.4 and CUDA 13.0 refuse it", "hipStreamSynchronize"),
        ("y = torch.tensor([1], device='cuda')", "add it to the graph", "hipMemcpyAsync"),
    ):
        file = tmp_path / "program.py"
        file.write_text(text.format(line))
        (found,) = (f for f in rs.lint(file).findings if f.code in ("SRC201", "SRC202", "SRC203"))
        assert behavior in found.why
        assert f"(`rocsolid explain {call}`)" in found.why
        assert rules_of(call)


def test_the_table_page_has_a_line_for_every_row() -> None:
    page = table_page()

    assert page.count("\n| hip") == len(CAPTURE_RULES)
    old = "| hipEventQuery | of an event recorded before the capture | runs immediately | 900, 900, runs immediately |"
    assert old in page
    assert "| hipMemcpy | to the host, on the default stream | 906 | 906 | **left out** |" in page


@pytest.mark.torch
def test_the_python_functions_of_every_row_exist() -> None:
    import torch

    for rule in CAPTURE_RULES:
        for name in rule.torch_callers:
            there: Any = torch
            for part in name.split(".")[1:]:
                there = getattr(there, part)
            assert callable(there)
            assert rule in rules_of(name)
