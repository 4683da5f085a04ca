"""What a model will meet on a chip that is not here."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rocsolid.catalog.chips import CHIPS, chip
from rocsolid.catalog.profiles import resolve as resolve_profile
from rocsolid.dryrun.request import KernelSignature, Request
from rocsolid.dryrun.runner import Surroundings, check_folder, default_cache, pair_note, run_request
from rocsolid.errors import InputError, RocsolidError, UsageError
from rocsolid.model.chip import Chip
from rocsolid.model.dryrun import DryRun, DryRunRecord, FailedTarget
from rocsolid.model.environment import CheckResult, Device
from rocsolid.model.finding import worst_first
from rocsolid.model.setting import Channel
from rocsolid.model.workload import WorkloadName
from rocsolid.probe.quick_facts import quick_environment
from rocsolid.process.run_command import Question, ask
from rocsolid.rules.dryrun.judging import judge_run

MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
_AGAINST = {"cuda": "sm_90"}


def dryrun(  # noqa: PLR0913 - all but two of them keywords
    workload: str,
    target: str | Sequence[str] = "gfx942",
    *,
    train: bool = False,
    mode: str = "default",
    profile: str = "",
    dynamic: bool | None = None,
    against: str = "",
    most_choices: int = 8,
    asm: bool = False,
    save: str | Path | None = None,
    deadline_s: float = 900.0,
    cache: str | Path | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> DryRunRecord:
    """Compile a workload for chips that are not here, and say what each kernel costs there and what will not work.

    Everything happens in child processes, without a GPU and without ROCm. Nothing is run on a device, so which of several
    configurations is fastest stays unknown.

    Args:
        workload: `file.py:function`, where the function returns `(callable, args, kwargs)`; tensors may be on the CPU.
        target: a chip such as gfx942, or several.
        train: also the backward pass.
        mode: as torch.compile takes it.
        profile: a profile whose options ride on the compile, as `rs.compile` would choose them on that chip.
        dynamic: as torch.compile takes it.
        against: `cuda` compiles the same for an H100, to compare.
        most_choices: how many kernels of each search of `max-autotune` are compiled; the rest is counted.
        asm: keep the assembly of each kernel in the result.
        save: a folder that gets the intermediate code, assembly and object file of each kernel.
        deadline_s: how long one chip may take.
        cache: where compiled kernels are kept from one dry run to the next.
        progress: hears what is being compiled.

    Example:
        >>> import rocsolid as rs
        >>> rs.dryrun("model.py:build", target="gfx941")
        Traceback (most recent call last):
        rocsolid.errors.UnknownNameError: unknown target 'gfx941'; did you mean 'gfx942' or 'gfx950' or 'gfx90a'?

    """
    chips, other = _chips(target), _other(against)
    if mode not in MODES:
        msg = f"unknown mode {mode!r}; there are {', '.join(MODES)}"
        raise UsageError(msg)
    if most_choices < 0:
        msg = f"{most_choices} kernels of a search cannot be compiled; give 0 to count them only"
        raise UsageError(msg)
    name = WorkloadName.parse(workload)
    if not name.file.is_file():
        msg = f"the workload's file {name.file} {'is a folder' if name.file.is_dir() else 'does not exist'}"
        raise InputError(msg)
    note = pair_note()
    around = _around(cache, save, deadline_s, progress)

    def run(on: Chip) -> DryRun:
        folder = str(Path(save).resolve() / on.arch) if save else ""
        request = Request(
            target=on.arch,
            workload=str(name),
            train=train,
            mode=mode,
            options=_options(profile, on),
            dynamic=dynamic,
            most_choices=most_choices,
            asm=asm,
            save=folder,
        )
        return _noted(run_request(request, around), note)

    return _each(DryRunRecord(workload=workload, mode=mode, train=train, profile=profile), run, chips, other)


def dryrun_kernels(  # noqa: PLR0913 - all but two of them keywords
    file: str | Path,
    target: str | Sequence[str] = "gfx942",
    *,
    signatures: Sequence[KernelSignature] = (),
    against: str = "",
    asm: bool = False,
    save: str | Path | None = None,
    deadline_s: float = 900.0,
    cache: str | Path | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> DryRunRecord:
    """Compile the Triton kernels of one file with the signatures given, as `dryrun` does for a model."""
    chips, other = _chips(target), _other(against)
    note = pair_note()
    around = _around(cache, save, deadline_s, progress)

    def run(on: Chip) -> DryRun:
        folder = str(Path(save).resolve() / on.arch) if save else ""
        request = Request(target=on.arch, file=str(file), signatures=tuple(signatures), asm=asm, save=folder)
        return _noted(run_request(request, around), note)

    return _each(DryRunRecord(workload=str(file), mode="kernels"), run, chips, other)


def _each(
    record: DryRunRecord, run: Callable[[Chip], DryRun], chips: Sequence[Chip], other: Chip | None
) -> DryRunRecord:
    """Every chip in turn. What one of them costs is not lost because another fails; when all fail the first says why."""
    runs: dict[str, DryRun] = {}
    errors: dict[str, RocsolidError] = {}
    for on in (*chips, *([other] if other else [])):
        try:
            runs[on.arch] = run(on)
        except UsageError:
            raise  # wrong for every chip alike
        except RocsolidError as failed:
            errors[on.arch] = failed
    mine = tuple(runs[c.arch] for c in chips if c.arch in runs)
    if not mine:
        raise next(iter(errors.values()))
    failures = tuple(FailedTarget(target=t, error=str(e), exit_code=e.exit_code) for t, e in errors.items())
    return judged(replace(record, runs=mine, against=runs.get(other.arch) if other else None, failed=failures))


def judged(record: DryRunRecord) -> DryRunRecord:
    """The record with what the rules find in its runs; the other vendor's run is there to compare with and is not judged."""
    return replace(record, findings=tuple(worst_first([f for run in record.runs for f in judge_run(run)])))


def _other(against: str) -> Chip | None:
    if against and against not in _AGAINST:
        msg = f"a dry run can be held against {' or '.join(_AGAINST)}, not {against!r}"
        raise UsageError(msg)
    return chip(_AGAINST[against]) if against else None


def _chips(target: str | Sequence[str]) -> list[Chip]:
    names = [target] if isinstance(target, str) else list(dict.fromkeys(target))
    if not names:
        msg = f"name at least one chip to compile for: {', '.join(known.arch for known in CHIPS)}"
        raise UsageError(msg)
    return [chip(name) for name in names]


def _around(
    cache: str | Path | None, save: str | Path | None, deadline_s: float, progress: Callable[[str], None]
) -> Surroundings:
    if not deadline_s > 0:
        msg = f"a deadline of {deadline_s:g} s is none; give some minutes"
        raise UsageError(msg)
    folder = Path(cache).resolve() if cache else default_cache()
    check_folder(folder, "compiled kernels")
    if save:
        check_folder(Path(save).resolve(), "what --save writes")
    return Surroundings(ask=_asked, cache=folder, deadline_s=deadline_s, progress=progress)


def _asked(command: Sequence[str], environ: Mapping[str, str], deadline_s: float) -> tuple[CheckResult, str]:
    reply = ask(Question(name="dry run", command=tuple(command), deadline_s=deadline_s, env=environ))
    return reply.answer, reply.errors


def _options(profile: str, on: Chip) -> dict[str, Any]:
    """What the profile would put on a compile, on that chip."""
    if not profile:
        return {}
    device = Device(index=0, name=on.product, arch=on.arch, memory_bytes=on.memory_gib << 30, platform=on.platform)
    env = replace(quick_environment(), platform=on.platform, devices=(device,))
    plan = resolve_profile(profile, env)
    return {d.name: d.value for d in plan if d.channel is Channel.OPTION}


def _noted(run: DryRun, note: str) -> DryRun:
    return replace(run, notes=(note, *run.notes)) if note else run
