"""A process that pretends to have a chip: what it says, where it says that it pretends, and that nothing is left behind."""

import json
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support import clean_environ, has_gpu, run_cli, run_python

import rocsolid as rs
from rocsolid.api.images import record_probe
from rocsolid.catalog.chips import CHIPS, parse_pretended_chip
from rocsolid.errors import CannotRunError, UsageError
from rocsolid.model.capture_report import Reason
from rocsolid.model.pretended_chip import Pretence
from rocsolid.model.saved_probe import ProbeRecord
from rocsolid.probe import pretended
from rocsolid.probe.pretended import require_no_gpu
from rocsolid.report.probe_text import headline
from rocsolid.report.terminal import Terminal
from rocsolid.runtime.launch.protect import set_variables

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(has_gpu(), reason="pretending is for machines without an accelerator"),
]
Pretend = Callable[[str], Pretence]
PROGRAM = """
import json, subprocess, sys
if len(sys.argv) == 1:
    subprocess.run([sys.executable, __file__, "child"])
import torch
import torch._inductor.config as config
config.max_autotune = True
import rocsolid as rs

def double(x):
    return x * 2

def waits(x):
    torch.cuda.synchronize()
    return x * 2

captured = {}
for function in (double, waits):
    fast = rs.capture(function)
    fast(torch.ones(2)), fast(torch.ones(2))
    captured[function.__name__] = [fast.report().replays, *(refusal.detail for refusal in fast.report().refusals)]
env = rs.probe(live=False)
print(json.dumps({
    "version": [torch.version.hip, torch.version.rocm, torch.version.cuda],
    "chip": torch.cuda.get_device_properties(0).gcnArchName,
    "available": torch.cuda.is_available(),
    "layout": config.layout_optimization,
    "search": config.max_autotune,
    "env": [env.platform.value, env.rocm_version, env.pretended, [d.arch for d in env.devices]],
    "captured": captured,
}), flush=True)
"""


def test_a_program_and_its_children_pretend_and_say_so(tmp_path: Path) -> None:
    """Torch before its compiler, the guard, the probe and captures, in both processes; told once, and marked in the report."""
    program, report = tmp_path / "program.py", tmp_path / "run.jsonl"
    program.write_text(PROGRAM)
    ran = run_cli("run", "--pretend", "gfx942@7.2.1", "--report", str(report), str(program))

    assert ran.code == 0, ran.err
    child, parent = (json.loads(line) for line in ran.out.splitlines())
    assert child == parent
    assert parent["version"] == ["7.2.53211", "7.2.1", None]
    assert parent["chip"] == "gfx942:sramecc+:xnack-"
    assert parent["available"] is False
    assert parent["layout"] is False  # Inductor's own default on ROCm
    assert parent["search"] is False  # the guard's work
    assert parent["env"] == ["rocm", "7.2.1", "gfx942@7.2.1", ["gfx942"]]
    assert parent["captured"]["double"] == [1]
    assert "a capture on HIP 7.2.4 refuses hipDeviceSynchronize" in parent["captured"]["waits"][1]
    said = "rocsolid: pretending to have AMD Instinct MI300X (gfx942) with ROCm 7.2.1; the program runs on the CPU"
    assert ran.err.splitlines().count(said) == 1
    lines = [json.loads(line) for line in report.read_text().splitlines()]
    assert [(line["pretended"], line["platform"]) for line in lines] == [("gfx942@7.2.1", "rocm")] * 2


def test_the_probe_of_a_pretended_machine_says_so_first() -> None:
    ran = run_cli("run", "--pretend", "gfx950", "-m", "rocsolid", "probe", "--fail-on", "never")

    assert ran.code == 0, ran.err
    assert ran.out.startswith("PRETENDED (gfx950@7.2.4), not this machine: torch ")
    assert "AMD Instinct MI355X (gfx950)" in ran.out
    assert "hip-graph-stale-host-write" in ran.out


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ("gfx94", "unknown target 'gfx94'; did you mean 'gfx942'"),
        ("gfx942@new", "'new' is not a release; write one such as gfx942@7.2.4"),
    ],
)
def test_what_nobody_can_pretend_is_refused_before_the_program_starts(asked: str, says: str) -> None:
    ran = run_cli("run", "--pretend", asked, "-c", "print('started')")

    assert (ran.code, ran.out) == (2, "")
    assert says in ran.err


def test_without_being_asked_no_process_pretends() -> None:
    """Not even one in which all of it was imported."""
    script = (
        "import rocsolid.testing, rocsolid.torchapi.pretend.fake_device_info as s, rocsolid as rs, torch\n"
        "print(s.standing_in(), torch.version.hip, rs.probe(live=False).pretended == '', rs.pretend is not None)"
    )
    ran = run_python("-c", script, env=clean_environ())

    assert ran.out == "None None True True\n"


def test_everything_is_as_before_after_a_test_that_pretended(pretend_chip: Pretend) -> None:
    import torch

    names = ("get_device_properties", "get_device_capability", "get_device_name")
    before = [torch.version.hip, torch.version.cuda, torch.version.rocm, *(getattr(torch.cuda, name) for name in names)]
    with rs.pretend("gfx1100"):
        assert torch.version.hip == "7.2.53211"
        assert torch.cuda.get_device_capability() == (11, 0)
        with pytest.raises(UsageError, match="pretends to have AMD Radeon RX 7900 XTX"):
            pretend_chip("gfx942")
    after = [torch.version.hip, torch.version.cuda, torch.version.rocm, *(getattr(torch.cuda, name) for name in names)]

    assert after == before
    assert rs.probe(live=False).pretended == ""


@pytest.mark.parametrize("chip", CHIPS, ids=lambda chip: chip.arch)
def test_every_chip_of_the_catalogue_can_be_pretended(pretend_chip: Pretend, chip: object) -> None:
    import torch

    given = pretend_chip(chip.arch)  # type: ignore[attr-defined]
    env = rs.probe(live=False)

    assert env.platform is given.chip.platform
    assert (torch.version.hip or "", torch.version.cuda or "") == (given.hip, given.cuda)
    assert torch.cuda.get_device_properties(0).multi_processor_count == given.chip.compute_units
    assert [device.arch for device in env.devices] == [given.chip.arch]
    assert headline(env, Terminal()).startswith(f"PRETENDED ({given})")
    assert parse_pretended_chip(str(given)) == given


def test_the_guard_pins_on_a_pretended_amd_chip_alone(pretend_chip: Pretend) -> None:
    for arch, pinned in (("gfx942", True), ("sm_90", False)):
        pretend_chip(arch)
        with rs.guard() as guard:
            assert guard.up is pinned
            assert (guard.plan is not None) is pinned


def test_the_environment_is_cleaned_for_a_pretended_amd_chip_alone(pretend_chip: Pretend) -> None:
    for arch, cleaned in (("gfx942", True), ("sm_90", False)):
        pretend_chip(arch)
        environ = {"AMD_SERIALIZE_KERNEL": "3", "TORCHINDUCTOR_MAX_AUTOTUNE": "1"}
        list(set_variables(rs.resolve("safe"), environ))
        assert ("TORCHINDUCTOR_MAX_AUTOTUNE" not in environ) is cleaned
        assert ("AMD_SERIALIZE_KERNEL" not in environ) is cleaned


def test_a_capture_plays_the_runtime_of_the_pretended_chip(pretend_chip: Pretend) -> None:
    """HIP 6.4 lets an old event be asked in a capture, 7.2 and CUDA do not; an unnamed backend is the tape."""
    import torch

    refused = {}
    for text in ("gfx942@6.4.3", "gfx942@7.2.4", "sm_90"):
        pretend_chip(text)
        asks = rs.capture(_asks_an_old_event())
        asks(torch.ones(2))
        refused[text] = {refusal.reason for refusal in asks.report().refusals}
        assert asks.report().backend.startswith("record, plays ")

    assert refused == {"gfx942@6.4.3": set(), "gfx942@7.2.4": {Reason.EVENT}, "sm_90": {Reason.EVENT}}


def _asks_an_old_event() -> Callable[..., object]:
    import torch

    events: list[torch.cuda.Event] = []

    def ask(x: torch.Tensor) -> torch.Tensor:
        if not events:
            events.append(torch.cuda.Event())
            events[0].record()
        else:
            events[0].query()
        return x * 2

    return ask


def test_captures_are_tried_elsewhere_where_a_library_may_end_the_process(pretend_chip: Pretend) -> None:
    for text, tried in (("gfx942", True), ("sm_90", False)):
        pretend_chip(text)
        assert (rs.capture(len, backend="device")._care.trial is not None) is tried
        assert rs.capture(len)._care.trial is None  # a tape ends no process


def test_the_probe_reads_defaults_and_folders_of_the_pretended_platform(pretend_chip: Pretend) -> None:
    seen = {}
    for text in ("gfx942", "sm_90"):
        pretend_chip(text)
        env = rs.probe(live=False)
        seen[text] = env.settings["inductor.layout_optimization"].value, {cache.name for cache in env.caches}

    assert seen["gfx942"] == (False, {"inductor", "triton", "miopen", "miopen user db"})
    assert seen["sm_90"] == (True, {"inductor", "triton"})


def test_graphs_share_no_memory_on_a_pretended_amd_chip(pretend_chip: Pretend, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless they are told to: sharing was seen to corrupt there."""
    from rocsolid.runtime.capture import choosing, device
    from rocsolid.runtime.capture.options import Options

    monkeypatch.setattr(device, "DeviceBackend", lambda _, *, shared, keep: f"shared: {shared}, kept: {keep}")
    for text, shared in (("gfx942", False), ("sm_90", True)):
        pretend_chip(text)
        assert str(choosing._device_backend("cuda", Options())) == f"shared: {shared}, kept: False"
        asked = Options(pool="shared", keep_graph=True)
        assert str(choosing._device_backend("cuda", asked)) == "shared: True, kept: True"


def test_the_devices_library_is_asked_by_its_own_names(pretend_chip: Pretend, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel of our own is for CUDA's driver alone."""
    from rocsolid.torchapi.graphs import driver_api

    both = types.SimpleNamespace(hipModuleLoadData="HIP's", cuModuleLoadData="CUDA's")
    monkeypatch.setattr(driver_api, "library", lambda: both)
    for text, asked in (("gfx942", "HIP's"), ("sm_90", "CUDA's")):
        pretend_chip(text)
        assert driver_api.call_named("ModuleLoadData") == asked
    pretend_chip("gfx942")
    assert driver_api.copy_kernel.__wrapped__(0, 8) is None


def test_replays_are_compared_twice_where_they_were_seen_to_be_corrupt(pretend_chip: Pretend) -> None:
    for text, rounds in (("gfx942@7.2.1", 2), ("gfx942@7.2.4", 0)):
        pretend_chip(text)
        assert rs.capture(len, verify="off")._options.verify.rounds == rounds


def test_a_pretended_machine_does_not_enter_the_ledger(pretend_chip: Pretend, tmp_path: Path) -> None:
    pretend_chip("gfx942")
    record = ProbeRecord(environment=rs.probe(live=False), findings=(), profile="safe")

    with pytest.raises(UsageError, match=r"its chip gfx942@7\.2\.4 is pretended"):
        record_probe(record, file=tmp_path / "ledger.json")
    assert not (tmp_path / "ledger.json").exists()


def test_a_machine_with_a_device_does_not_pretend(tmp_path: Path) -> None:
    require_no_gpu(tmp_path)
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/kfd").touch()

    with pytest.raises(CannotRunError, match="need a machine without a GPU"):
        require_no_gpu(tmp_path)


def test_what_a_script_defines_is_not_tried_in_a_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On ROCm the first capture is tried in a child, which cannot load what the user's own script defines; that is no failure."""
    import torch

    from rocsolid.model.environment import CheckResult, CheckStatus
    from rocsolid.runtime.compile_in_child import main, try_in_child

    script = types.ModuleType("script")
    vars(script)["double"] = types.FunctionType((lambda x: x * 2).__code__, vars(script), "double")
    script.double.__qualname__, script.double.__module__ = "double", "script"
    monkeypatch.setitem(sys.modules, "script", script)
    file = tmp_path / "call.pt"
    torch.save({"model": script.double, "args": (), "kwargs": {}, "grad": True}, file)
    vars(script).pop("double")
    with pytest.raises(SystemExit) as left:
        main(str(file))
    said = CheckResult(name="in a child", status=CheckStatus.FAILED, detail=str(left.value))
    answer = try_in_child(lambda _command, _limit: said, 1, len, (), {}, {})

    assert answer.status is CheckStatus.SKIPPED
    assert answer.detail.startswith("the function cannot be sent to a child: ")


def test_a_variable_left_in_a_shell_is_refused_beside_a_device_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(pretended.VARIABLE, "gfx942")
    assert pretended.pretended_chip() == parse_pretended_chip("gfx942")

    monkeypatch.setattr(pretended, "_DEVICES", ("dev/zero",))
    with pytest.raises(CannotRunError, match="/dev/zero"):
        pretended.pretended_chip()
