"""Messages of probe, ledger, settings, explain, doctor and the errors, as users see them.

`ROCSOLID_UPDATE=1 pytest tests/golden` writes the files.
"""

import inspect
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support import check_golden, clean_environ, make_env, run_cli, run_python

import rocsolid.errors
from rocsolid.api.explain import find_setting
from rocsolid.api.images import record_probe
from rocsolid.catalog import registry
from rocsolid.catalog.chips import chip, parse_pretended_chip
from rocsolid.catalog.images import IMAGES
from rocsolid.catalog.overrides import apply_overrides
from rocsolid.catalog.profiles import resolve
from rocsolid.cli.records import read_probe, read_record
from rocsolid.errors import MissingExtraError, RocsolidError
from rocsolid.model.codec import decode, encode, loads
from rocsolid.model.environment import (
    CheckResult,
    CheckStatus,
    Container,
    Device,
    Environment,
    Host,
    Origin,
    SettingValue,
    StartupHook,
)
from rocsolid.model.finding import Finding
from rocsolid.model.platform import Platform
from rocsolid.model.probed_name import ProbedName
from rocsolid.model.redact import HIDDEN
from rocsolid.model.saved_probe import ProbeRecord
from rocsolid.probe.diff import compare_probes
from rocsolid.probe.ledger import Ledger
from rocsolid.probe.pretended import require_no_gpu
from rocsolid.report.doctor import doctor_text
from rocsolid.report.fix_commands import env_file, fix_text
from rocsolid.report.machine_readable import github, sarif
from rocsolid.report.probe_text import difference_text, images_markdown, images_text, probe_text
from rocsolid.report.terminal import Terminal, page_text
from rocsolid.rules.engine import check_environment
from rocsolid.version import __version__

TERMINAL = Terminal(width=100)
FIRST, SECOND = "CFG001:inductor.max_autotune", "ENV001:HIP_LAUNCH_BLOCKING"


def machine() -> Environment:
    """An MI300X in a container, with two settings changed, a failed check and a hanging tool."""
    return make_env(
        rocm="7.1.1",
        devices=tuple(
            Device(
                index=index,
                name="AMD Instinct MI300X",
                arch="gfx942",
                memory_bytes=206141652992,
                platform=Platform.ROCM,
                driver="6.12.12",
            )
            for index in range(2)
        ),
        python="3.12.3",
        driver="6.12.12",
        host=Host(system="Linux 6.8.0", cores=64, memory_bytes=1 << 40, compiler="/usr/bin/g++"),
        container=Container(engine="podman", image="rocm/pytorch:7.1", image_id="sha256:feed"),
        image_fingerprint="fc7b50de1849cae6",
        packages={"torch": "2.13.0", "triton": "3.7.1"},
        variables={"TORCHINDUCTOR_MAX_AUTOTUNE": "1", "HIP_LAUNCH_BLOCKING": "1", "TORCH_API_TOKEN": HIDDEN},
        settings={
            "inductor.max_autotune": SettingValue(
                value=True, default=False, origin=Origin.VARIABLE, set_by="TORCHINDUCTOR_MAX_AUTOTUNE"
            ),
            "dynamo.recompile_limit": SettingValue(
                value=1024, default=8, origin=Origin.LIBRARY, set_by="/site/greedy.py:2 (import greedy)"
            ),
            "inductor.freezing": SettingValue(value=False, default=False),
        },
        startup_hooks=(StartupHook(kind="sitecustomize", file="/site/sitecustomize.py"),),
        tools=(CheckResult(name="rocminfo", status=CheckStatus.HUNG, detail="no result within 5 s", seconds=5.0),),
        active_checks=(
            CheckResult(name="gemm float32", status=CheckStatus.OK, detail="on cuda", seconds=0.4),
            CheckResult(
                name="capture (process 1)",
                status=CheckStatus.WRONG,
                detail="replay 117: relative error 3.1 (largest error / largest value), allowed: 0.0001",
                seconds=2.5,
            ),
            CheckResult(
                name="capture (process 2)", status=CheckStatus.OK, detail="200 replays equal eager", seconds=2.4
            ),
            CheckResult(
                name="capture (process 3)", status=CheckStatus.OK, detail="200 replays equal eager", seconds=2.4
            ),
        ),
        unknowns=("settings that start-up files and libraries assign (use --live to read them)",),
    )


def findings(*keys: str) -> tuple[Finding, ...]:
    found = check_environment(machine(), resolve("safe", machine()))
    return tuple(f for f in found if f.key in keys or (not keys and f.code != "KNO001"))


def saved(**changes: object) -> ProbeRecord:
    return ProbeRecord(environment=replace(machine(), **changes), findings=findings(), profile="safe")  # type: ignore[arg-type]


def test_probe_with_findings() -> None:
    check_golden("probe/probe_with_findings", probe_text(saved(), TERMINAL))


def test_probe_without_findings() -> None:
    record = ProbeRecord(
        environment=make_env(Platform.CPU, python="3.12.3", host=machine().host), findings=(), profile="safe"
    )
    check_golden("probe/probe_without_findings", probe_text(record, TERMINAL))


def test_fixes() -> None:
    check_golden("probe/fix", fix_text(findings()))
    check_golden("probe/fix_env_file", env_file(findings()))


def test_formats_for_other_tools() -> None:
    check_golden("probe/github", github(findings(FIRST, SECOND)))
    check_golden("probe/sarif", sarif(findings(SECOND)), replace={re.escape(__version__): "<version>"})


def test_difference() -> None:
    after = replace(saved(variables={}, settings={}, rocm_version="7.2.1"), findings=findings(SECOND))
    check_golden("probe/difference", difference_text(compare_probes(saved(), after), TERMINAL))


def test_doctor() -> None:
    crash = (Path("/tmp/rocsolid-crashes-1000/crash-20261115-101500-abc.txt"),)  # noqa: S108 - only printed
    names = (
        ProbedName(name="torch._foreach_copy_", without="rs.capture: tensors are copied one by one"),
        ProbedName(
            name="torch._C._dynamo.guards.TensorGuards",
            without="rs.capture: inputs are compared in Python, so a replay costs more CPU time",
            problem="it exists, and does something else than rocsolid needs",
        ),
        ProbedName(name="torch._C._cuda_releasePool", without="", skipped="only builds with CUDA or ROCm have it"),
    )
    text = doctor_text(machine(), version="1.2.3", extras={"trace": True, "tune": False}, crashes=crash, names=names)
    check_golden("probe/doctor", text)


def test_ledger(tmp_path: Path) -> None:
    file = tmp_path / "ledger.db"
    record_probe(saved(), file=file)
    entries = Ledger(file).entries()
    check_golden("probe/ledger_list", images_text(entries, TERMINAL))
    check_golden("probe/ledger_export", images_markdown(entries))


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("rule", "CFG001"),
        ("setting", "max_autotune"),
        ("variable", "HIP_LAUNCH_BLOCKING"),
        ("problem", "autotune-hang"),
        ("call", "hipEventQuery"),
        ("error", "906"),
        ("list", "profiles"),
    ],
)
def test_explain(kind: str, name: str) -> None:
    from rocsolid.api.explain import explain
    from rocsolid.report.page_index import list_names

    check_golden(f"probe/explain_{kind}", page_text(list_names(name) or explain(name), TERMINAL))


def broken_files(folder: Path) -> dict[str, Callable[[], object]]:
    """Calls that fail because of a file."""
    (folder / "text.db").write_text("<html>")
    claim = IMAGES[0].image
    return {
        "not JSON": lambda: loads("{", "probe.json"),
        "JSON of another program": lambda: loads("[1]", "probe.json"),
        "a result that is not a probe": lambda: read_probe('{"schema": "rocsolid/study/1"}', "old.json"),
        "a result that cannot be rendered": lambda: read_record('{"schema": "rocsolid/ledger/1"}', "l.json"),
        "a wrong value": lambda: decode(Environment, {**encode(make_env()), "devices": 3}, "probe.json"),
        "a missing field": lambda: decode(Environment, {}, "probe.json"),
        "not a ledger": lambda: Ledger(folder / "text.db"),
        "an unknown image": lambda: Ledger(folder / "no.db").find(claim[:-1]),
    }


def wrong_values() -> dict[str, Callable[[], object]]:
    """Calls that fail because of an argument or a variable."""
    env = make_env()
    return {
        "an unknown setting": lambda: registry.setting("inductor.max_autotun"),
        "an unknown name": lambda: rocsolid.explain("CFG0001"),
        "an unknown name, nothing similar": lambda: rocsolid.explain("xyzzy"),
        "an unknown profile": lambda: rocsolid.resolve("saef", env),
        "an unknown profile, nothing similar": lambda: rocsolid.resolve("xyzzy", env),
        "an unknown chip": lambda: chip("gfx941"),
        "a wrong release of a chip": lambda: parse_pretended_chip("gfx942@new"),
        "an unknown override": lambda: apply_overrides(resolve("safe", env), {"ROCSOLID_INDUCTOR_MAX_AUTOTUN": "1"}),
        "a wrong override": lambda: apply_overrides(resolve("safe", env), {"ROCSOLID_INDUCTOR_MAX_AUTOTUNE": "maybe"}),
        "a pretended chip in the ledger": lambda: record_probe(saved(pretended="gfx942@7.2.1")),
        "a missing extra": lambda: _raise(MissingExtraError("rocsolid tune", "tune")),
    }


def _raise(error: Exception) -> None:
    raise error


def test_errors(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/kfd").touch()
    calls = broken_files(tmp_path) | wrong_values()
    calls["a pretended chip on a machine with a GPU"] = lambda: require_no_gpu(tmp_path)
    lines = []
    for title, call in calls.items():
        with pytest.raises(RocsolidError) as error:
            call()
        lines.append(f"{title}\n  {type(error.value).__name__}: {error.value}")
    check_golden("probe/errors", "\n".join(lines), replace={str(tmp_path): "<tmp>"})


def test_ambiguous_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    known = [registry.setting(name) for name in ("inductor.freezing", "inductor.max_autotune")]
    monkeypatch.setattr(registry, "find_short", lambda _: tuple(known))
    with pytest.raises(RocsolidError) as error:
        find_setting("x")
    check_golden("probe/error_ambiguous_setting", str(error.value))


def test_error_classes() -> None:
    """The public errors, each with its one sentence and its exit code."""
    classes = [
        value for value in vars(rocsolid.errors).values() if inspect.isclass(value) and issubclass(value, RocsolidError)
    ]
    lines = [f"{kind.__name__} ({kind.exit_code}): {str(inspect.getdoc(kind)).splitlines()[0]}" for kind in classes]
    check_golden("probe/error_classes", "\n".join(lines))


CRASH = "import rocsolid.report.page_index as index\nindex.list_names = lambda name: {}['missing']\n"


@pytest.mark.parametrize("command", ["", "probe", "ledger", "settings", "explain", "report", "doctor", "completion"])
def test_help(command: str) -> None:
    ran = run_cli(*command.split(), "--help", env=clean_environ(COLUMNS="100", NO_COLOR="1"))
    check_golden(f"probe/help_{command or 'rocsolid'}", ran.out)


@pytest.mark.torch
def test_command_line(tmp_path: Path) -> None:
    """What the commands print, run as a user runs them."""
    env = clean_environ(
        TORCHINDUCTOR_MAX_AUTOTUNE="1", ROCSOLID_LEDGER=str(tmp_path / "l.db"), TMPDIR=str(tmp_path), COLUMNS="100"
    )
    crash = f"{CRASH}from rocsolid.cli import main\nraise SystemExit(main(['explain', 'rules']))\n"
    shown = []
    for words in (
        "probe --allow KNO001 --allow SYS010 --allow SYS003",
        "probe --fix --allow KNO001 --allow SYS010 --allow SYS003",
        "probe --image x:1",
        "probe --fix --output json",
        "probe --diff missing.json",
        "probe --output pdf",
        "prob",
        "settings --values",
        "settings max_autotun",
        "report missing.json",
        "ledger scan x:1 --deadline 0",
        f"ledger diff {IMAGES[0].image} {IMAGES[1].image}",
        "ledger merge missing.db",
    ):
        ran = run_cli(*words.split(), env=env)
        shown.append(f"$ rocsolid {words}    (exit code {ran.code})\n{ran.out}{ran.err}")
    ran = run_python("-c", crash, env=env)
    shown.append(f"an unexpected error    (exit code {ran.code})\n{ran.out}{ran.err}")
    changing = {
        str(tmp_path): "<tmp>",
        r"torch \d\S+ on \S+ · .*": "torch <version> on <platform> · <devices> · <python>",
        r"crash-[\w-]+\.txt": "crash-<time>.txt",
        r"(?m)^  (machine|devices|driver|container|image fingerprint|torch|packages|compiler|start-up files|caches|unknown) .*\n(?: {5,}.*\n)*": "",
        r"\d+ read, 1 changed": "<n> read, 1 changed",
        r"(?m)(?:^INFO .*\n(?: {16}.*\n)*)+\n(?=  settings)": "",  # torch releases and machines differ in them
        r", \d+ info(; -v shows .*)?": "",
        r"\d+ settings (that can only be read by importing torch:) .*(?:\n {21}.*)*": r"<n> settings \1 <names>",
        r"(?<=choose from )[^)]*": "…",
    }
    check_golden("probe/command_line", "\n".join(shown), replace=changing)


def test_sarif_is_json() -> None:
    assert json.loads(sarif(findings(SECOND)))["version"] == "2.1.0"
