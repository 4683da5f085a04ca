"""Checks that need no GPU: experiments on torch.compile, private names, the probe, the guard's routes, and the GPU tests of a checkout."""

import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from rocsolid.catalog.support import SUPPORTED_PYTHON
from rocsolid.errors import MissingExtraError
from rocsolid.model.platform import Platform
from rocsolid.model.proof import ClaimResult, ClaimVerdict
from rocsolid.model.release import compare
from rocsolid.prove.check import KIT, CannotDecide, NotApplicable, Seen, Task, check, in_kit, plain, result
from rocsolid.prove.gpu_cases import CaseResults, run_gpu_cases

_RECORDS: Final = {"cpu": "evidence/compiler-facts-torch-2.13-cpu.json", "gpu": "evidence/capture-facts-on-h200.json"}
_HIDDEN_GPUS: Final = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "", "ROCR_VISIBLE_DEVICES": ""}
_ROUTES_ON_CPU: Final = ("mode_reduce_overhead", "options", "assigned_globally")
_ROUTES_DEADLINE_S: Final = 280.0
_PROFILED: Final = 10  # kernels


@check(
    "fact", "the experiment that the evidence cites gives the same result here", rank=20, estimate_s=15, deadline_s=300
)
def fact(task: Task) -> Seen:
    """Repeat an experiment of scripts/facts in a process with empty caches."""
    sys.path[:0] = [str(in_kit("scripts/measure_facts.py").parent)]
    measure_facts = importlib.import_module("measure_facts")
    experiment = measure_facts.FACTS[task.argument]
    import torch

    kind = "gpu" if "gpu" in experiment.kinds and torch.cuda.is_available() else "cpu"
    if kind not in experiment.kinds:
        msg = "no GPU"
        raise CannotDecide(msg)
    if experiment.cpu_build and task.env.platform is not Platform.CPU:
        msg = f"it is about CPU builds of torch; this is one for {task.env.platform.label}"
        raise NotApplicable(msg)
    if kind == "cpu":
        os.environ.update(_HIDDEN_GPUS)
    recorded = json.loads(in_kit(_RECORDS[kind]).read_text(encoding="utf-8"))["torch"]
    return judge_fact(measure_facts.measure(experiment), recorded, task.env.torch.version if task.env.torch else "")


def judge_fact(row: Mapping[str, Any], recorded: str, installed: str) -> Seen:
    """The experiment holds if it gave what it declares; on another release than the recorded one it does not apply otherwise."""
    seen = {name: plain(value) for name, value in row.get("seen", {}).items()}
    if "failed" not in row:
        return Seen(holds=True, detail=row["says"], values=seen)
    if "seen" not in row:
        raise CannotDecide(row["failed"])
    if compare(recorded, installed) != 0:
        msg = f"measured with torch {recorded}; with {installed}: {row['failed']}"
        raise NotApplicable(msg)
    return Seen(holds=False, detail=row["failed"], values=seen)


@check("private-names", "every private torch name does what rocsolid needs", rank=14, estimate_s=45, deadline_s=300)
def private_names(task: Task) -> Seen:
    """Probe the names on this torch."""
    from rocsolid.new_torch import probe_private_names

    names, problem = probe_private_names()
    if problem:
        raise CannotDecide(problem)
    failed = [f"{name.name}: {name.problem}" for name in names if name.problem]
    version = task.env.torch.version if task.env.torch else "none"
    detail = "; ".join(failed) or f"{len(names)} names work on torch {version}"
    return Seen(holds=not failed, detail=detail, values={"names": len(names), "failed": len(failed)})


@check("versions", "every public name can be imported on this Python", rank=15, estimate_s=10)
def versions(task: Task) -> Seen:
    """Load every public name."""
    import rocsolid as rs

    if not SUPPORTED_PYTHON.holds(task.env.python):
        msg = f"Python {task.env.python} is not in {SUPPORTED_PYTHON}"
        raise NotApplicable(msg)
    missing = []
    for name in rs.__all__:
        try:
            getattr(rs, name)
        except MissingExtraError:
            continue  # an extra that is not installed
        except Exception as error:  # noqa: BLE001 - any error is the result
            missing.append(f"{name}: {error}")
    return Seen(holds=not missing, detail="; ".join(missing) or f"{len(rs.__all__)} names, Python {task.env.python}")


@check("probe", "the probe and torch agree about GPUs, architecture and release", rank=4, estimate_s=10)
def probe(task: Task) -> Seen:
    """Compare the snapshot with what torch reports."""
    import torch

    import rocsolid as rs

    env = rs.probe(live=False)
    count = torch.cuda.device_count()
    archs = []
    for index in range(count):
        properties = torch.cuda.get_device_properties(index)
        arch = str(getattr(properties, "gcnArchName", "")).partition(":")[0] if torch.version.hip else ""
        archs.append(arch or f"sm_{properties.major}{properties.minor}")
    return judge_probe([device.arch for device in env.devices], archs, env.platform, task.env.platform)


def judge_probe(found: list[str], in_torch: list[str], platform: Platform, built_for: Platform) -> Seen:
    """A container may hide GPUs from torch, so torch's must be among those that were found."""
    left = list(found)
    for arch in in_torch:
        if arch not in left:
            return Seen(holds=False, detail=f"torch has {in_torch}, the probe found {found}")
        left.remove(arch)
    return Seen(holds=platform is built_for, detail=f"{platform.label}: {', '.join(in_torch) or 'no GPU'}")


@check("profiler", "torch.profiler's trace contains every kernel of a small program", rank=17, estimate_s=15)
def profiler(_: Task) -> Seen:
    """Profile ten additions, and count them in the trace file."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    on_gpu = torch.cuda.is_available()
    x = torch.zeros(1024, device="cuda" if on_gpu else "cpu").add_(1)
    with profile(activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]) as profiled:
        for _number in range(_PROFILED):
            x.add_(1)
        _ = x.sum().item()  # waits for the GPU
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "trace.json")
        profiled.export_chrome_trace(str(file))
        events = json.loads(file.read_text(encoding="utf-8"))["traceEvents"]
    if not on_gpu:
        found = sum(event.get("name") == "aten::add_" for event in events)
        msg = f"there are no kernels without a GPU; {found} of {_PROFILED} operators are in the trace"
        raise NotApplicable(msg)
    return judge_profile(sum(event.get("cat") == "kernel" for event in events))


def judge_profile(kernels: int) -> Seen:
    """The sum is one kernel more, or two."""
    return Seen(holds=kernels > _PROFILED, detail=f"{kernels} kernels in the trace of {_PROFILED} additions and a sum")


@check("observe", "a compile is recorded with its graphs, and a graph break with its line", rank=16, estimate_s=30)
def observe(_: Task) -> Seen:
    """Record a compile with one graph break. `rs.breaks` leaves out the lines of rocsolid itself, and this is one."""
    import torch

    import rocsolid as rs

    def broken(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        # rocsolid: allow[host-sync-in-compiled-region] it is the break that is to be recorded
        return y * 2 if y.sum().item() > 0 else y

    with rs.record_compiles() as whole:
        torch.compile(lambda x: x.sin() + 1, backend="aot_eager")(torch.ones(4))
    with rs.record_compiles() as parts:
        torch.compile(broken, backend="aot_eager")(torch.ones(4))
    seen = [f"{Path(one.location).name}: {one.cause}" for one in parts.breaks]
    line = f"{Path(__file__).name}:{broken.__code__.co_firstlineno + 3}"
    exact = [one for one in seen if one.startswith(line) and "item" in one]
    holds = (len(whole.graphs), len(exact), len(seen)) == (1, 1, 1)
    return Seen(holds=holds, detail=f"{len(whole.graphs)} graph; {'; '.join(seen) or 'no break'}")


@check("active", "the result of a small computation on this device is right", rank=2, estimate_s=25, deadline_s=240)
def active(task: Task) -> Seen:
    """Run the computations of `rocsolid probe --active`."""
    from rocsolid.probe import active_programs

    names = active_programs.GROUPS[task.argument]
    rows = {
        name: active_programs.compiled() if task.argument == "compile" else active_programs.gemm(name.split()[1])
        for name in names
    }
    detail = "; ".join(f"{name}: {text}" for name, (_, text, _) in rows.items())
    values = {f"{name} {what}": plain(value) for name, (*_, seen) in rows.items() for what, value in seen.items()}
    return Seen(holds=all(status == "ok" for status, *_ in rows.values()), detail=detail, values=values)


@check(
    "routes",
    "no route into the compiler gets an unsafe value under rs.guard on ROCm; elsewhere nothing changes",
    rank=30,
    estimate_s=150,
    deadline_s=600,
)
def routes(task: Task) -> Seen:
    """Start the compiler in every way, without and with the guard. Without a GPU: in three ways, as if torch were a ROCm build."""
    import torch

    script = in_kit("tests/runtime/routes.py")
    on_gpu = torch.cuda.is_available()
    given = ["--device", "cuda"] if on_gpu else ["--pretend-rocm", "--routes", *_ROUTES_ON_CPU]
    runs = []
    for guard in ([], ["--guard"]):
        env = {**os.environ, "TORCHINDUCTOR_MAX_AUTOTUNE_GEMM_BACKENDS": "ATEN", **({} if on_gpu else _HIDDEN_GPUS)}
        with tempfile.TemporaryDirectory() as caches:  # an interrupted run has left something in the usual ones
            done = subprocess.run(  # noqa: S603 - our own program
                [sys.executable, str(script), *guard, *given],
                env={**env, "TORCHINDUCTOR_CACHE_DIR": caches},
                capture_output=True, text=True, timeout=_ROUTES_DEADLINE_S, check=False,
            )  # fmt: skip
        if done.returncode:
            raise CannotDecide(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "routes.py failed")
        runs.append(json.loads(done.stdout))
    return judge_routes(*runs, refuses=task.env.platform is Platform.ROCM or not on_gpu)


def judge_routes(unguarded: Mapping[str, Any], guarded: Mapping[str, Any], *, refuses: bool) -> Seen:
    """On ROCm no guarded route may be unsafe; elsewhere it must see what it sees without the guard."""
    ran = [name for name, route in unguarded.items() if route["observed"] and name in guarded]
    unsafe = [
        name
        for name in ran
        if any(s["max_autotune"] or s["cudagraphs"] or s.get("captures") for s in guarded[name]["observed"])
    ]
    changed = [name for name in ran if guarded[name]["observed"] != unguarded[name]["observed"]]
    wrong = unsafe if refuses else changed
    word = "unsafe with the guard" if refuses else "changed by the guard"
    return Seen(
        holds=bool(ran) and not wrong,
        detail=f"{word}: {', '.join(wrong)}" if wrong else f"{len(ran)} routes",
        values={"routes": len(ran)},
    )


@check(
    "gpu-tests", "the tests with the mark `gpu` in this folder pass", rank=12, estimate_s=200, deadline_s=600, gpu=True
)
def gpu_tests(task: Task) -> Iterator[ClaimResult]:
    """Run the tests of a checkout or bundle with pytest; a test that hangs or ends its process costs only itself."""
    done = run_gpu_cases(in_kit(task.argument), in_kit("pyproject.toml").parent)
    sys.stdout.write(done.output)
    yield from (result(claim, judge_tests(done), str(done)) for claim in task.claims)


def judge_tests(done: CaseResults) -> ClaimVerdict:
    """Tests decide only if they ran; one that hung or ended its process has not passed."""
    if done.failed or done.died:
        return ClaimVerdict.REFUTED
    return ClaimVerdict.CONFIRMED if done.passed and not done.errors else ClaimVerdict.COULD_NOT_RUN


def kit_files() -> Iterator[Path]:
    """Yield the files besides the package that the checks need. An installed wheel has none of them."""
    files = ["docs/data/guides.json", *_RECORDS.values(), "pyproject.toml", "scripts/measure_facts.py"]
    files += ["tests/conftest.py", "tests/support.py"]
    if not all((KIT / name).exists() for name in files):
        return
    yield from (KIT / name for name in files)
    for folder in ("scripts/facts", "tests/runtime", "tests/ops"):
        yield from sorted((KIT / folder).rglob("*.py"))
