"""Compile a workload for GPUs that are not present."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rocsolid.catalog.chips import CHIPS, chip
from rocsolid.catalog.profiles import resolve as resolve_profile
from rocsolid.dryrun.request import KernelSignature, Request
from rocsolid.dryrun.runner import RunnerContext, check_folder, default_cache, run_child, run_request, version_note
from rocsolid.errors import InputError, RocsolidError, UsageError
from rocsolid.model.chip import Chip
from rocsolid.model.dryrun import DryRun, DryRunRecord, FailedTarget
from rocsolid.model.environment import CheckResult, Device
from rocsolid.model.finding import Finding, worst_first
from rocsolid.model.progress import OnStep, Step
from rocsolid.model.setting import Channel
from rocsolid.model.workload import WorkloadName
from rocsolid.probe.quick_facts import quick_environment
from rocsolid.process.run_command import Command, run_with_deadline
from rocsolid.report.progress import steps_for
from rocsolid.rules.dryrun_rules import check_dry_run

MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
CONFIGS = ("all", "best", "first")
_NEUTRAL_CHIP = "sm_90"
_PLACEHOLDER = "FILE.py:FUNCTION"  # in the checks of the rules
_START_S = 120.0  # to import torch and read the files, on a slow machine
_COMPARED_CHIPS = {"cuda": "sm_90"}


def dryrun(  # noqa: PLR0913 - all but two are keywords
    workload: str,
    target: str | Sequence[str] = "gfx942",
    *,
    train: bool = False,
    mode: str = "default",
    profile: str = "",
    dynamic: bool | None = None,
    compare: str = "",
    configs: str = "all",
    max_choices: int = 8,
    asm: bool = False,
    save: str | Path | None = None,
    deadline_s: float = 900.0,
    cache: str | Path | None = None,
    progress: bool | OnStep = False,
) -> DryRunRecord:
    """Compile a workload for GPUs that are not present, and report the resource usage of each kernel and what fails on them.

    Runs in child processes and needs neither a GPU nor ROCm. No kernel is executed, so it cannot tell which of several
    configurations is fastest.

    Args:
        workload: `file.py:function`, where the function returns `(callable, args, kwargs)`; tensors may be on the CPU.
        target: a chip such as gfx942, or a list of chips.
        train: also compile the backward pass.
        mode: `mode=` of torch.compile.
        profile: a profile whose options are added to the compile, as `rs.compile` would on that chip.
        dynamic: `dynamic=` of torch.compile.
        compare: `cuda` also compiles for an H100 and reports the differences.
        configs: which configurations of an autotuned kernel to report: `all` that its pruning leaves, the `best` of them by
            spills and occupancy, or only the `first`, which takes the least time.
        max_choices: how many kernels of each `max-autotune` search to compile; the others are only counted.
        asm: include the assembly of each kernel in the result.
        save: a folder for the intermediate code, assembly and object file of each kernel.
        deadline_s: time limit for one chip.
        cache: folder in which compiled kernels are cached.
        progress: True shows on stderr what is being compiled; a function is called with each `rs.Step`.

    Example:
        >>> import rocsolid as rs
        >>> rs.dryrun("model.py:build", target="gfx941")
        Traceback (most recent call last):
        rocsolid.errors.UnknownNameError: unknown target 'gfx941'; did you mean 'gfx942' or 'gfx950' or 'gfx90a'?

    """
    chips, compared_chip = _chips(target), _compared_chip(compare)
    if mode not in MODES:
        msg = f"mode={mode!r} is not a valid value; choose one of {', '.join(MODES)}"
        raise UsageError(msg)
    _check_configs(configs)
    if max_choices < 0:
        msg = f"max_choices must be at least 0, not {max_choices} (0 only counts the choices)"
        raise UsageError(msg)
    name = WorkloadName.parse(workload)
    if not name.file.is_file():
        msg = f"the workload's file {name.file} {'is a folder' if name.file.is_dir() else 'does not exist'}"
        raise InputError(msg)
    note = version_note(compiles=True)
    with steps_for(progress) as on_step:
        context = _context(cache, save, deadline_s, lambda line: on_step(Step(what=line)))

        def run(chip_: Chip) -> DryRun:
            folder = str(Path(save).resolve() / chip_.arch) if save else ""
            request = Request(
                target=chip_.arch,
                workload=str(name),
                train=train,
                mode=mode,
                options=_options(profile, chip_),
                dynamic=dynamic,
                configs=configs,
                max_choices=max_choices,
                asm=asm,
                save=folder,
            )
            return _with_note(run_request(request, context), note)

        return _run_all(
            DryRunRecord(workload=workload, mode=mode, train=train, profile=profile), run, chips, compared_chip
        )


def dryrun_kernels(  # noqa: PLR0913 - all but two are keywords
    paths: str | Path | Sequence[str | Path],
    target: str | Sequence[str] = "gfx942",
    *,
    signatures: Sequence[KernelSignature] = (),
    tests: Sequence[str | Path] = (),
    only: Sequence[str] = (),
    compare: str = "",
    configs: str = "all",
    asm: bool = False,
    save: str | Path | None = None,
    deadline_s: float = 900.0,
    kernel_deadline_s: float = 120.0,
    cache: str | Path | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> DryRunRecord:
    """Compile every Triton kernel in files and folders, as `dryrun` does for a model: a porting report for a project.

    How a kernel is called is taken from `signatures`, or recorded from a run of the project's `tests` (with pytest, on fake tensors),
    or inferred from its source and from the lines that launch it. `only` names
    the kernels to compile (`name` or `file.py:name`). A kernel that crashes the compiler or takes longer than `kernel_deadline_s` fails alone.
    After `deadline_s` no further kernel is started.
    """
    chips, compared_chip = _chips(target), _compared_chip(compare)
    _check_configs(configs)
    note = version_note()
    context = _context(cache, save, deadline_s, progress)
    names = tuple(str(path) for path in ([paths] if isinstance(paths, (str, Path)) else paths))
    context = replace(context, deadline_s=deadline_s + kernel_deadline_s + _START_S)  # ends a child that hangs
    # Triton's intermediate code is the same for every GPU, so that all chips get the same signatures.
    request = Request(
        target=_NEUTRAL_CHIP,
        kernels=names,
        signatures=tuple(signatures),
        find_signatures=True,
        only=tuple(only),
        kernel_deadline_s=kernel_deadline_s,
        deadline_s=deadline_s,
    )
    recorded: list[KernelSignature] = []
    if tests:
        running = replace(request, kernels=(), signatures=(), find_signatures=False, tests=tuple(map(str, tests)))
        given = {signature.name for signature in signatures}
        roots = [Path(name).resolve() for name in names]
        recorded = [
            signature
            for signature in run_child(running, context).signatures
            if signature.name not in given and any(Path(signature.file).is_relative_to(root) for root in roots)
        ]
    request = replace(request, signatures=(*signatures, *recorded))
    found = run_child(request, context)
    if not found.signatures:
        reasons = "; ".join(f"{kernel.name}: {kernel.reason}" for kernel in found.skipped[:3])
        msg = f"{', '.join(names)}: no kernel can be compiled without a signature ({reasons})"
        raise InputError(msg)

    def run(chip_: Chip) -> DryRun:
        folder = str(Path(save).resolve() / chip_.arch) if save else ""
        compiling = replace(
            request,
            target=chip_.arch,
            signatures=found.signatures,
            find_signatures=False,
            configs=configs,
            asm=asm,
            save=folder,
        )
        return _with_note(replace(run_request(compiling, context), skipped=found.skipped), note)

    return _run_all(DryRunRecord(workload=" ".join(names), mode="kernels"), run, chips, compared_chip)


def _run_all(
    record: DryRunRecord, run: Callable[[Chip], DryRun], chips: Sequence[Chip], compared_chip: Chip | None
) -> DryRunRecord:
    """Run the dry run for every chip, one after the other. A chip that fails does not affect the others; if all fail, the first error is raised."""
    runs: dict[str, DryRun] = {}
    errors: dict[str, RocsolidError] = {}
    for chip_ in (*chips, *([compared_chip] if compared_chip else [])):
        try:
            runs[chip_.arch] = run(chip_)
        except UsageError:
            raise  # the same error for every chip
        except RocsolidError as error:
            errors[chip_.arch] = error
    target_runs = tuple(runs[c.arch] for c in chips if c.arch in runs)
    if not target_runs:
        raise next(iter(errors.values()))
    failures = tuple(FailedTarget(target=t, error=str(e), exit_code=e.exit_code) for t, e in errors.items())
    return with_findings(
        replace(
            record, runs=target_runs, compared=runs.get(compared_chip.arch) if compared_chip else None, failed=failures
        )
    )


def with_findings(record: DryRunRecord) -> DryRunRecord:
    """The record with the findings of all rules about its runs; the run for comparison is not checked."""
    found = [_with_own_command(f, record) for run in record.runs for f in check_dry_run(run)]
    return replace(record, findings=tuple(worst_first(found)))


def _with_own_command(finding: Finding, record: DryRunRecord) -> Finding:
    """The finding with the user's own files and options in its check."""
    words = f"--kernels {record.workload}" if record.mode == "kernels" else record.workload
    words += " --train" if record.train else ""
    words += f" --profile {record.profile}" if record.profile else ""
    if record.mode not in ("kernels", "default") and "without --mode" not in finding.check:
        words += f" --mode {record.mode}"
    return replace(finding, check=finding.check.replace(_PLACEHOLDER, words))


def _check_configs(configs: str) -> None:
    if configs not in CONFIGS:
        msg = f"configs={configs!r} is not a valid value; choose one of {', '.join(CONFIGS)}"
        raise UsageError(msg)


def _compared_chip(compare: str) -> Chip | None:
    if compare and compare not in _COMPARED_CHIPS:
        msg = f"compare must be {' or '.join(_COMPARED_CHIPS)}, not {compare!r}"
        raise UsageError(msg)
    return chip(_COMPARED_CHIPS[compare]) if compare else None


def _chips(target: str | Sequence[str]) -> list[Chip]:
    names = [target] if isinstance(target, str) else list(dict.fromkeys(target))
    if not names:
        msg = f"target is empty; name at least one chip: {', '.join(known.arch for known in CHIPS)}"
        raise UsageError(msg)
    return [chip(name) for name in names]


def _context(
    cache: str | Path | None, save: str | Path | None, deadline_s: float, progress: Callable[[str], None]
) -> RunnerContext:
    if not deadline_s > 0:
        msg = f"deadline_s must be greater than 0, not {deadline_s:g}"
        raise UsageError(msg)
    folder = Path(cache).resolve() if cache else default_cache()
    check_folder(folder, "compiled kernels", loads_code=True)
    if save:
        check_folder(Path(save).resolve(), "the files of --save")
    return RunnerContext(run_command=_run_command, cache=folder, deadline_s=deadline_s, progress=progress)


def _run_command(command: Sequence[str], environ: Mapping[str, str], deadline_s: float) -> tuple[CheckResult, str]:
    result = run_with_deadline(Command(name="dry run", command=tuple(command), deadline_s=deadline_s, env=environ))
    return result.check, result.stderr


def _options(profile: str, chip_: Chip) -> dict[str, Any]:
    """The compile options of the profile on that chip."""
    if not profile:
        return {}
    device = Device(
        index=0, name=chip_.product, arch=chip_.arch, memory_bytes=chip_.memory_gib << 30, platform=chip_.platform
    )
    env = replace(quick_environment(), platform=chip_.platform, devices=(device,))
    plan = resolve_profile(profile, env)
    return {d.name: d.value for d in plan if d.channel is Channel.OPTION}


def _with_note(run: DryRun, note: str) -> DryRun:
    return replace(run, notes=(note, *run.notes)) if note else run
