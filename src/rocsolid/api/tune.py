"""The best settings for a workload, found in processes that may die; and two settings straight against each other."""

import hashlib
import json
import os
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from rocsolid.api.safety import chosen_plan
from rocsolid.catalog.profiles import PROFILES
from rocsolid.errors import CannotRunError, InputError, UnknownNameError, UsageError
from rocsolid.measure.process_race import Rules
from rocsolid.model.codec import encode
from rocsolid.model.environment import Device, Environment
from rocsolid.model.plan import Plan
from rocsolid.model.platform import Platform
from rocsolid.model.study import Duel, Study
from rocsolid.model.workload import WorkloadName
from rocsolid.probe.devices import has_driver
from rocsolid.probe.host import read_host
from rocsolid.probe.quick_facts import quick_environment
from rocsolid.tune.ab_test import run_duel
from rocsolid.tune.effort import Effort, Progress
from rocsolid.tune.engine import VISIBLE, Engine, Local, slots_of
from rocsolid.tune.git_commits import checked_out, variables_in
from rocsolid.tune.isolate.trial import Limits
from rocsolid.tune.screening import Screening
from rocsolid.tune.search import has_optuna, search_of
from rocsolid.tune.space import FORM, GRAPH, Choices, Narrowing, read_narrowing, space_of
from rocsolid.tune.store import open_store, shared
from rocsolid.tune.study import run_study
from rocsolid.tune.trials import Job, Room

_FEWEST_ROUNDS: Final = 6  # below that no order of signs is rarer than one in twenty
_COMMIT: Final = "git:"
_TURNS: Final = 8  # a host has neighbours that come and go within a second; a device has its own clock
# AMD's kernel driver has eight address spaces for the processes on a device (VMID 8 to 15); beyond that they take turns.
_ON_ROCM: Final = 8
_NONE: Final = ("", "-1")  # what hides every device
DEFAULT_FILE: Final = Path(".rocsolid/tune.db")


def tune(  # noqa: PLR0913 - all of them keywords
    workload: str,
    *,
    profile: str = "fast",
    plan: Plan | str | Path | None = None,
    settings: Mapping[str, str] | None = None,
    vary: Mapping[str, Sequence[str]] | Sequence[str] | None = None,
    without: Sequence[str] = (),
    space: str | Path | None = None,
    search: str | None = None,
    effort: Effort | None = None,
    limits: Limits | None = None,
    grad: bool = False,
    cold: bool = False,
    file: str | Path = DEFAULT_FILE,
    fresh: bool = False,
    engine: str = "",
    slots: int = 0,
    ranks: int = 1,
    progress: Progress | None = None,
) -> Study:
    """Find the settings that are really best for a workload; each is tried in a process of its own.

    A variant that hangs costs its deadline, one that crashes its own process, and one that answers otherwise than eager is out.
    The best are raced in turns, in fresh processes, beside a control. `study.best` is the plan of the winner.

    Args:
        workload: `file.py:function`, where the function returns `(callable, args, kwargs)`.
        profile: where the search begins.
        plan: a plan, or the file of one, to begin with in place of the profile.
        settings: values that every variant has, by the setting's id.
        vary: settings to vary and no others, with the values to try; the catalogue's when none are given.
        without: settings not to vary.
        space: a TOML file with the same three: tables `set` and `vary`, and a list `no`.
        search: 'tpe' (needs Optuna), 'one-at-a-time' or 'exhaustive'; TPE where Optuna is installed.
        effort: budget, trials, finalists, rounds, what a plan may cost, and whether a second objective guides the search.
        limits: deadlines of the phases, memory and processes of a trial.
        grad: leave gradients on; they are off by default, as for inference.
        cold: empty the device's caches before every call.
        file: where the study is kept, or the address of a PostgreSQL that keeps it; the same call again resumes it.
        fresh: begin anew.
        engine: nothing for one trial at a time, 'local' for one on each visible GPU, 'ray' or 'ray://…' for a cluster.
        slots: how many trials at once, where that is not to be one for each GPU.
        ranks: processes of one trial, started as torchrun starts them; all have the same plan.
        progress: hears of phases and trials.

    Example:
        >>> import rocsolid as rs
        >>> rs.tune("nowhere.py:build")
        Traceback (most recent call last):
        ...
        rocsolid.errors.InputError: the workload's file nowhere.py does not exist

    """
    spending = effort or Effort()
    _sane(spending.rounds, spending.least_gain, spending.trials, spending.budget_s)
    env = quick_environment()
    start = chosen_plan(profile, plan, env)
    said = _narrowing(settings, vary, without, space)
    home = DEFAULT_FILE if shared(file) else Path(file)
    elsewhere = engine.startswith("ray")
    job, key = _job(workload, start, env, said, home, limits, grad=grad, cold=cold, ranks=ranks, elsewhere=elsewhere)
    method = search or ("tpe" if has_optuna() else "one-at-a-time")
    following = search_of(method, job.space, second=spending.second)
    keep_out_of_git(home.parent)
    with closing(open_store(file, key, workload)) as store, closing(_engine(engine, env, slots, ranks)) as runs:
        try:
            if fresh:
                store.forget()
            screening = Screening(job, following, store, runs, spending)
            return run_study(job, screening, runs, method, spending, progress or Progress())
        except sqlite3.Error as broken:
            msg = f"the study in {file} cannot be read or written any more: {broken}"
            raise CannotRunError(msg) from broken


def _engine(name: str, env: Environment, slots: int, ranks: int) -> Engine:
    """Where the trials run, by its name."""
    if ranks < 1 or slots < 0:
        msg = f"{ranks} ranks and {slots} slots are no numbers to work with; give at least 1 of each"
        raise UsageError(msg)
    kind, address, _ = name.partition("://")
    if kind == "ray":
        from rocsolid.tune.ray_engine import OnRay

        return OnRay(name if address else "", ranks=ranks, wanted=slots)
    if name == "local" or (slots and not name):
        return Local(slots_of(env.platform, len(_seen(env)), ranks, slots))
    if name:
        raise UnknownNameError(kind="engine", name=name, known=["local", "ray", "ray://HOST:PORT"])
    return Local()


def ab(  # noqa: PLR0913 - all but three of them keywords
    workload: str,
    a: str,
    b: str,
    *,
    profile: str = "fast",
    rounds: int = 24,
    least_gain: float = 0.02,
    limits: Limits | None = None,
    grad: bool = False,
    progress: Progress | None = None,
) -> Duel:
    """Compare two sides of one workload, in fresh processes that take turns, beside a control.

    Args:
        workload: `file.py:function`.
        a: a profile, the file of a plan, or values on top of `profile`, such as `inductor.freezing=true,form=compiled`;
            after `git:REVISION` (and a comma, when something follows) it is tried with the files of that commit.
        b: likewise.
        profile: what values are put on top of.
        rounds: how often each side is timed, in four processes one after the other; up to three times that when it is too
            close to call.
        least_gain: a smaller difference counts as none.
        limits: deadlines of the phases, memory and processes of a trial.
        grad: leave gradients on.
        progress: hears of phases.

    Example:
        >>> import rocsolid as rs
        >>> rs.ab("nowhere.py:build", "safe", "fast")
        Traceback (most recent call last):
        ...
        rocsolid.errors.InputError: the workload's file nowhere.py does not exist

    """
    _sane(rounds, least_gain)
    env = quick_environment()
    sides = []
    with ExitStack() as trees:
        for key, text in (("a", a), ("b", b)):
            place, variables, values = _place(workload, text, trees)
            start, said = _side(values, profile, env)
            job, _ = _job(place, start, env, said, DEFAULT_FILE, limits, grad=grad)
            choices: Choices = {}
            if start.tuned is not None:
                choices = job.space.variant({FORM: start.tuned.form, GRAPH: start.tuned.graph})
            sides.append((text, replace(job, folder=job.folder / key, variables=variables), choices))
        keep_out_of_git(DEFAULT_FILE.parent)
        rules = Rules(
            rounds=rounds, turns=sides[0][1].turns, renew_every=max(1, rounds // 4), drop=False, budget_s=3600
        )
        duel = run_duel((sides[0], sides[1]), rules, least_gain, (progress or Progress()).phase)
    name = WorkloadName.parse(workload)
    return replace(duel, workload=f"{name.file.resolve()}:{name.function}")


def keep_out_of_git(folder: Path) -> None:
    """Studies and logs are nobody's source; a folder that the user chose is the user's to look after."""
    if folder.name == DEFAULT_FILE.parent.name:
        with suppress(OSError):  # whoever writes the study says what is wrong with the folder
            folder.mkdir(parents=True, exist_ok=True)
            if not (folder / ".gitignore").exists():
                (folder / ".gitignore").write_text("*\n", encoding="utf-8")


def _sane(rounds: int, least_gain: float, trials: int = 1, budget_s: float = 1.0) -> None:
    said = ""
    if rounds < _FEWEST_ROUNDS:
        said = f"{rounds} rounds are too few to be sure of anything; give at least {_FEWEST_ROUNDS}"
    elif not 0 <= least_gain < 1:
        said = f"the least gain is a ratio such as 0.02 for two per cent, and {least_gain:g} is none"
    elif trials < 1:
        said = f"{trials} trials find nothing; give at least 1"
    elif not budget_s > 0:
        said = f"a budget of {budget_s:g} s is none; give some minutes"
    if said:
        raise UsageError(said)


def _narrowing(
    settings: Mapping[str, str] | None,
    vary: Mapping[str, Sequence[str]] | Sequence[str] | None,
    without: Sequence[str],
    space: str | Path | None,
) -> Narrowing:
    named = read_narrowing(Path(space)) if space is not None else Narrowing()
    varied = vary if isinstance(vary, Mapping) else dict.fromkeys(vary or (), ())
    return Narrowing(
        fixed={**named.fixed, **(settings or {})},
        vary={**named.vary, **varied},
        without=(*named.without, *without),
    )


def _job(  # noqa: PLR0913 - all that a question consists of
    workload: str,
    start: Plan,
    env: Environment,
    said: Narrowing,
    file: Path,
    limits: Limits | None,
    *,
    grad: bool = False,
    cold: bool = False,
    ranks: int = 1,
    elsewhere: bool = False,
) -> tuple[Job, str]:
    """What the trials have in common, and the key by which a study is found again: the same question about the same code."""
    name = WorkloadName.parse(workload)
    if not name.file.is_file():
        msg = f"the workload's file {name.file} does not exist"
        raise InputError(msg)
    where = f"{name.file.resolve()}:{name.function}"
    space = space_of(start, env, said, on_device=_on_device(env, elsewhere=elsewhere))
    asked = [where, name.file.read_text(encoding="utf-8", errors="replace"), env.torch_version, grad, cold]
    asked += [encode(space.start), [device.arch for device in _seen(env)]]
    asked += [[knob.id, knob.values[0]] for knob in space.knobs if knob.id in (FORM, GRAPH)]  # what `start` means
    asked += [ranks] if ranks > 1 else []
    key = hashlib.sha256(json.dumps(asked).encode()).hexdigest()
    folder = (file.parent / "tune" / key[:12]).resolve()
    job = Job(
        workload=where,
        space=space,
        folder=folder,
        limits=limits or Limits(),
        grad=grad,
        cold=cold,
        turns=1 if _seen(env) else _TURNS,
        ranks=ranks,
        room=_room(env) if ranks == 1 else Room(),
    )
    return job, key


def _on_device(env: Environment, *, elsewhere: bool) -> bool:
    """Whether trials may find a device; a torch that was built for one says nothing of that."""
    if env.platform is Platform.CPU:
        return False
    return elsewhere or bool(_seen(env)) or (has_driver() and not _hidden(env))


def _seen(env: Environment) -> tuple[Device, ...]:
    """The chips that trials will find, unless the user has hidden them all."""
    return () if _hidden(env) else env.usable_devices


def _hidden(env: Environment) -> bool:
    said = os.environ.get(VISIBLE.get(env.platform, ""))
    return said is not None and said.strip() in _NONE


def _room(env: Environment) -> Room:
    device = min((device.memory_bytes for device in _seen(env)), default=0)
    host = read_host(os.environ)
    processes = _ON_ROCM if env.platform is Platform.ROCM else Room.processes
    return Room(cores=host.cores, host_bytes=host.memory_bytes, device_bytes=device, processes=processes)


def _place(workload: str, text: str, trees: ExitStack) -> tuple[str, dict[str, str], str]:
    """Where a side's workload lies, what its processes need to find it, and what is left of the side's text."""
    if not text.startswith(_COMMIT):
        return workload, {}, text
    revision, _, values = text.removeprefix(_COMMIT).partition(",")
    name = WorkloadName.parse(workload)
    if not name.file.is_file():
        msg = f"the workload's file {name.file} does not exist"
        raise InputError(msg)
    there = trees.enter_context(checked_out(name.file, revision))
    return f"{there}:{name.function}", variables_in(there, name.file), values


def _side(text: str, profile: str, env: Environment) -> tuple[Plan, Narrowing]:
    """A profile, the file of a plan, or values on top of the profile; nothing is the profile itself."""
    if not text:
        return chosen_plan(profile, None, env), Narrowing()
    if text in {known.name for known in PROFILES}:
        return chosen_plan(text, None, env), Narrowing()
    if text.endswith(".toml"):
        return chosen_plan(profile, text, env), Narrowing()
    fixed = dict(pair.partition("=")[::2] for pair in text.split(";" if ";" in text else ",") if pair)
    if not all(fixed.values()):
        msg = f"{text!r} is neither a profile, nor a plan.toml, nor values such as inductor.freezing=true"
        raise UsageError(msg)
    return chosen_plan(profile, None, env), Narrowing(fixed=fixed)
