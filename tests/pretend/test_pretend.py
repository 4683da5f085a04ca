"""Simulated chips: what torch and rocsolid report for them, that this is announced, and that everything is restored."""

import json
import re
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support import clean_environ, has_gpu, installed_torch, run_cli, run_python

import rocsolid as rs
from rocsolid.api.images import record_probe
from rocsolid.catalog.chips import CHIPS, parse_pretended_chip
from rocsolid.errors import CannotRunError, UsageError
from rocsolid.model.capture_report import Reason
from rocsolid.model.environment import CheckResult, CheckStatus
from rocsolid.model.pretended_chip import PretendedChip
from rocsolid.model.release import compare
from rocsolid.model.saved_probe import ProbeRecord
from rocsolid.probe import pretended
from rocsolid.probe.pretended import require_no_gpu
from rocsolid.report.probe_text import headline
from rocsolid.report.terminal import Terminal
from rocsolid.runtime.launch.protect import set_variables

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(has_gpu(), reason="rs.pretend needs a machine without a GPU"),
]
Pretend = Callable[[str], PretendedChip]
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

def synchronizes(x):
    torch.cuda.synchronize()
    return x * 2

captured = {}
for function in (double, synchronizes):
    fast = rs.capture(function)
    fast(torch.ones(2)), fast(torch.ones(2))
    captured[function.__name__] = [fast.report().replays, *(refusal.message for refusal in fast.report().refusals)]
env = rs.probe(live=False)
print(json.dumps({
    "version": [torch.version.hip, getattr(torch.version, "rocm", None), torch.version.cuda],
    "chip": torch.cuda.get_device_properties(0).gcnArchName,
    "available": torch.cuda.is_available(),
    "layout": config.layout_optimization,
    "max_autotune": config.max_autotune,
    "env": [env.platform.value, env.rocm_version, env.pretended, [d.arch for d in env.devices]],
    "captured": captured,
}), flush=True)
"""


def test_a_program_and_its_child_processes_get_the_simulated_chip(tmp_path: Path) -> None:
    """Torch, its compiler, the guard, the probe and captures use the chip in both processes. It is announced once and is in the report."""
    import torch

    program, report = tmp_path / "program.py", tmp_path / "run.jsonl"
    program.write_text(PROGRAM)
    ran = run_cli("run", "--pretend", "gfx942@7.2.1", "--report", str(report), str(program))

    assert ran.code == 0, ran.err
    child, parent = (json.loads(line) for line in ran.out.splitlines())
    assert child == parent
    assert parent["version"] == ["7.2.53211", "7.2.1" if hasattr(torch.version, "rocm") else None, None]
    assert parent["chip"] == "gfx942:sramecc+:xnack-"
    assert parent["available"] is False
    assert parent["layout"] is False  # Inductor's own default on ROCm
    assert parent["max_autotune"] is False  # the guard refused True
    assert parent["env"] == ["rocm", "7.2.1", "gfx942@7.2.1", ["gfx942"]]
    assert parent["captured"]["double"] == [1]
    assert "hipDeviceSynchronize fails with" in parent["captured"]["synchronizes"][1]
    announcement = (
        "rocsolid: torch reports a simulated AMD Instinct MI300X (gfx942) with ROCm 7.2.1; the program runs on the CPU"
    )
    assert ran.err.splitlines().count(announcement) == 1
    lines = [json.loads(line) for line in report.read_text().splitlines()]
    assert [(line["pretended"], line["platform"]) for line in lines] == [("gfx942@7.2.1", "rocm")] * 2


def test_the_probe_of_a_simulated_chip_starts_with_a_notice() -> None:
    ran = run_cli("run", "--pretend", "gfx950", "-m", "rocsolid", "probe", "--fail-on", "never")

    assert ran.code == 0, ran.err
    assert ran.out.startswith("PRETENDED CHIP (gfx950@7.2.4): not the real hardware of this machine\ntorch ")
    assert "AMD Instinct MI355X (gfx950)" in ran.out
    assert "hip-graph-stale-host-write" in ran.out


@pytest.mark.parametrize(
    ("chip", "message"),
    [
        ("gfx94", "unknown target 'gfx94'; did you mean 'gfx942'"),
        ("gfx942@new", "'new' is not a release; write one such as gfx942@7.2.4"),
    ],
)
def test_an_unknown_chip_or_release_is_refused_before_the_program_starts(chip: str, message: str) -> None:
    ran = run_cli("run", "--pretend", chip, "-c", "print('started')")

    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err


def test_no_chip_is_simulated_by_default() -> None:
    """Importing all modules that are involved changes nothing."""
    script = (
        "import rocsolid.testing, rocsolid.torchapi.pretend.fake_device_info as s, rocsolid as rs, torch\n"
        "print(s.active_pretended_chip(), torch.version.hip, rs.probe(live=False).pretended == '', rs.pretend is not None)"
    )
    ran = run_python("-c", script, env=clean_environ())

    assert ran.out == "None None True True\n"


def test_everything_is_restored_after_rs_pretend(pretend_chip: Pretend) -> None:
    import torch

    def reported() -> list[object]:
        functions = (torch.cuda.get_device_properties, torch.cuda.get_device_capability, torch.cuda.get_device_name)
        return [torch.version.hip, torch.version.cuda, getattr(torch.version, "rocm", "missing"), *functions]

    before = reported()
    with rs.pretend("gfx1100"):
        assert torch.version.hip == "7.2.53211"
        assert torch.cuda.get_device_capability() == (11, 0)
        with pytest.raises(UsageError, match=r"already active in this process \(AMD Radeon RX 7900 XTX"):
            pretend_chip("gfx942")

    assert reported() == before
    assert rs.probe(live=False).pretended == ""


@pytest.mark.parametrize("chip", CHIPS, ids=lambda chip: chip.arch)
def test_every_chip_of_the_catalogue_can_be_simulated(pretend_chip: Pretend, chip: object) -> None:
    import torch

    simulated = pretend_chip(chip.arch)  # type: ignore[attr-defined]
    env = rs.probe(live=False)

    assert env.platform is simulated.chip.platform
    assert (torch.version.hip or "", torch.version.cuda or "") == (simulated.hip, simulated.cuda)
    assert torch.cuda.get_device_properties(0).multi_processor_count == simulated.chip.compute_units
    assert [device.arch for device in env.devices] == [simulated.chip.arch]
    assert headline(env, Terminal()).startswith(f"PRETENDED CHIP ({simulated})")
    assert parse_pretended_chip(str(simulated)) == simulated


# What torch's C++ code defines for `torch.cuda.get_device_properties()`, in torch 2.9 to 2.15.
BOUND = (
    "L2_cache_size",
    "clock_rate",
    "gcnArchName",
    "is_integrated",
    "is_multi_gpu_board",
    "major",
    "max_threads_per_block",
    "max_threads_per_multi_processor",
    "memory_bus_width",
    "memory_clock_rate",
    "minor",
    "multi_processor_count",
    "name",
    "pci_bus_id",
    "pci_device_id",
    "pci_domain_id",
    "regs_per_multiprocessor",
    "shared_memory_per_block",
    "shared_memory_per_block_optin",
    "shared_memory_per_multiprocessor",
    "total_memory",
    "uuid",
    "warp_size",
)


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100", "sm_90"])
def test_device_properties_have_every_attribute_of_torchs_class(pretend_chip: Pretend, arch: str) -> None:
    import torch

    pretend_chip(arch)
    properties = torch.cuda.get_device_properties(0)
    stub = Path(torch.__file__).parent / "_C/__init__.pyi"  # what this torch declares
    body = stub.read_text().partition("class _CudaDeviceProperties:\n")[2].partition("\nclass ")[0]
    declared = re.findall(r"^    (\w+): ", body.partition("\n\n")[0], re.MULTILINE)

    assert len(declared) > 10
    assert [name for name in {*BOUND, *declared} if not hasattr(properties, name)] == []
    assert all(
        isinstance(getattr(properties, name), int) for name in BOUND if name not in ("gcnArchName", "name", "uuid")
    )
    assert len(properties.uuid.bytes) == 16
    assert str(properties.uuid).count("-") == 4
    assert repr(properties).startswith(f"_CudaDeviceProperties(name='{properties.name}', major={properties.major}, ")
    assert {properties: 1}[torch.cuda.get_device_properties()] == 1  # hashable, as a key of functools.cache
    assert ("gcnArchName=" in repr(properties)) is arch.startswith("gfx")
    with pytest.raises(AttributeError):
        properties.name = "other"
    with pytest.raises(AttributeError, match="'_CudaDeviceProperties' object has no attribute 'cores'"):
        properties.cores  # noqa: B018


def test_the_guard_enforces_values_only_on_a_simulated_amd_chip(pretend_chip: Pretend) -> None:
    for arch, enforced in (("gfx942", True), ("sm_90", False)):
        pretend_chip(arch)
        with rs.guard() as guard:
            assert guard.active is enforced
            assert (guard.plan is not None) is enforced


def test_unsafe_variables_are_removed_only_for_a_simulated_amd_chip(pretend_chip: Pretend) -> None:
    for arch, removed in (("gfx942", True), ("sm_90", False)):
        pretend_chip(arch)
        environ = {"AMD_SERIALIZE_KERNEL": "3", "TORCHINDUCTOR_MAX_AUTOTUNE": "1"}
        list(set_variables(rs.resolve("safe"), environ))
        assert ("TORCHINDUCTOR_MAX_AUTOTUNE" not in environ) is removed
        assert ("AMD_SERIALIZE_KERNEL" not in environ) is removed


def test_a_capture_names_the_release_that_was_asked_for(pretend_chip: Pretend) -> None:
    pretend_chip("gfx942@7.2.1")
    nearest = "record, simulates HIP 7.2.4, whose capture rules are the nearest known to those of 7.2.1"
    assert rs.capture(len).report().backend == nearest
    pretend_chip("gfx942@7.2.4")
    assert rs.capture(len).report().backend == "record, simulates HIP 7.2.4"


def test_a_capture_simulates_the_runtime_of_the_simulated_chip(pretend_chip: Pretend) -> None:
    """HIP 6.4 allows querying an earlier event in a capture, HIP 7.2 and CUDA do not; backend="auto" is the record backend."""
    import torch

    refused = {}
    for text in ("gfx942@6.4.3", "gfx942@7.2.4", "sm_90"):
        pretend_chip(text)
        fast = rs.capture(_queries_an_earlier_event())
        fast(torch.ones(2))
        refused[text] = {refusal.reason for refusal in fast.report().refusals}
        assert fast.report().backend.startswith("record, simulates ")

    assert refused == {"gfx942@6.4.3": set(), "gfx942@7.2.4": {Reason.EVENT_QUERIED}, "sm_90": {Reason.EVENT_QUERIED}}


def _queries_an_earlier_event() -> Callable[..., object]:
    import torch

    events: list[torch.cuda.Event] = []

    def query(x: torch.Tensor) -> torch.Tensor:
        if not events:
            events.append(torch.cuda.Event())
            events[0].record()
        else:
            events[0].query()
        return x * 2

    return query


def test_the_first_capture_is_tried_in_a_child_process_only_on_amd(pretend_chip: Pretend) -> None:
    per_stream = compare(installed_torch(), "2.12") >= 0  # older releases have one hipBLASLt handle for all streams
    for text, tried in (("gfx950@7.1.1", True), ("gfx942", per_stream), ("sm_90", False)):
        pretend_chip(text)
        assert rs.capture(len, backend="device")._precautions.try_in_child is tried
        assert not rs.capture(len)._precautions.try_in_child  # recording operators cannot end the process


def test_the_probe_uses_defaults_and_cache_folders_of_the_simulated_platform(pretend_chip: Pretend) -> None:
    results = {}
    for text in ("gfx942", "sm_90"):
        pretend_chip(text)
        env = rs.probe(live=False)
        results[text] = env.settings["inductor.layout_optimization"].value, {cache.name for cache in env.caches}

    assert results["gfx942"] == (False, {"inductor", "triton", "miopen", "miopen user db"})
    assert results["sm_90"] == (True, {"inductor", "triton"})


def test_graphs_share_no_memory_pool_on_a_simulated_amd_chip(
    pretend_chip: Pretend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On ROCm a shared pool has corrupted results, so it is used only if it is requested."""
    from rocsolid.runtime.capture.backends import device

    monkeypatch.setattr(device, "DeviceBackend", lambda _, **options: options)
    for text, rocm in (("gfx942", True), ("sm_90", False)):
        pretend_chip(text)
        default = rs.capture(len, backend="device")._device_backend("cuda")
        assert default == {"shared_pool": not rocm, "warm_up_on_capture_stream": rocm, "keep_graph": False}
        requested = rs.capture(len, backend="device", pool="shared", keep_graph=True)._device_backend("cuda")
        assert requested == {"shared_pool": True, "warm_up_on_capture_stream": rocm, "keep_graph": True}


def test_the_driver_functions_have_the_names_of_the_platform(
    pretend_chip: Pretend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy kernel exists only for CUDA."""
    from rocsolid.torchapi.graphs import driver_api

    both = types.SimpleNamespace(hipModuleLoadData="HIP's", cuModuleLoadData="CUDA's")
    monkeypatch.setattr(driver_api, "library", lambda: both)
    for text, function in (("gfx942", "HIP's"), ("sm_90", "CUDA's")):
        pretend_chip(text)
        assert driver_api.driver_function("ModuleLoadData") == function
    pretend_chip("gfx942")
    assert driver_api.copy_kernel.__wrapped__(0, 8) is None


def test_replays_are_compared_twice_on_releases_with_corrupt_replays(pretend_chip: Pretend) -> None:
    for text, rounds in (("gfx942@7.2.1", 2), ("gfx942@7.2.4", 0)):
        pretend_chip(text)
        assert rs.capture(len, verify="off")._options.verify.rounds == rounds


def test_a_probe_of_a_simulated_chip_is_not_added_to_the_ledger(pretend_chip: Pretend, tmp_path: Path) -> None:
    pretend_chip("gfx942")
    record = ProbeRecord(environment=rs.probe(live=False), findings=(), profile="safe")

    with pytest.raises(UsageError, match=r"its chip gfx942@7\.2\.4 is pretended"):
        record_probe(record, file=tmp_path / "ledger.json")
    assert not (tmp_path / "ledger.json").exists()


def test_rs_pretend_is_an_error_on_a_machine_with_a_gpu(tmp_path: Path) -> None:
    require_no_gpu(tmp_path)
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/kfd").touch()

    with pytest.raises(CannotRunError, match="work only on a machine without a GPU"):
        require_no_gpu(tmp_path)


def test_a_function_of_the_main_script_is_not_tried_in_a_child_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The child process cannot load functions of the main script. Then the trial is skipped; it does not count as failed."""
    import torch

    from rocsolid.runtime.compile_in_child import main, try_in_child

    script = types.ModuleType("script")
    vars(script)["double"] = types.FunctionType((lambda x: x * 2).__code__, vars(script), "double")
    script.double.__qualname__, script.double.__module__ = "double", "script"
    monkeypatch.setitem(sys.modules, "script", script)
    file = tmp_path / "call.pt"
    torch.save({"model": script.double, "args": (), "kwargs": {}, "grad": True}, file)
    vars(script).pop("double")
    with pytest.raises(SystemExit) as exit_:
        main(str(file))
    failed = CheckResult(name="in a child process", status=CheckStatus.FAILED, detail=str(exit_.value))
    result = try_in_child(lambda _command, _deadline_s: failed, 1, len, (), {}, {})

    assert result.status is CheckStatus.SKIPPED
    assert result.detail.startswith("the function cannot be sent to a child process: ")


def test_the_variable_is_refused_on_a_machine_with_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(pretended.VARIABLE, "gfx942")
    assert pretended.pretended_chip() == parse_pretended_chip("gfx942")

    monkeypatch.setattr(pretended, "_GPU_DEVICE_FILES", ("dev/zero",))
    with pytest.raises(CannotRunError, match="/dev/zero"):
        pretended.pretended_chip()
