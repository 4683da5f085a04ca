"""`rs.tune`: find the best settings for a workload. `rs.ab`: compare two profiles, plans, settings or commits."""

import hashlib
import json
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from rocsolid.api.safety import select_plan
from rocsolid.catalog.profiles import PROFILES
from rocsolid.catalog.tuning import DEFAULT_MAX_PROCESSES_PER_GPU, MAX_PROCESSES_PER_GPU, VISIBLE_DEVICES
from rocsolid.errors import CannotRunError, InputError, UnknownNameError, UsageError
from rocsolid.measure.process_race import RaceOptions
from rocsolid.model.codec import encode
from rocsolid.model.environment import Device, Environment
from rocsolid.model.plan import Plan
from rocsolid.model.platform import Platform
from rocsolid.model.progress import OnStep, Step
from rocsolid.model.study import ABResult, Study
from rocsolid.model.workload import WorkloadName
from rocsolid.probe.devices import has_driver
from rocsolid.probe.host import read_host
from rocsolid.probe.quick_facts import quick_environment
from rocsolid.report.progress import steps_for
from rocsolid.tune.ab_test import run_ab_test
from rocsolid.tune.effort import Effort, Progress, TrialUpdate, fastest_so_far
from rocsolid.tune.engine import Engine, LocalEngine, gpu_slots
from rocsolid.tune.git_commits import checked_out, import_variables
from rocsolid.tune.isolate.trial import Limits
from rocsolid.tune.screening import Screening
from rocsolid.tune.search import has_optuna, make_search
from rocsolid.tune.space import FORM, GRAPH, Choices, Restrictions, build_space, read_restrictions
from rocsolid.tune.store import is_server_url, open_store
from rocsolid.tune.study import run_study
from rocsolid.tune.trials import Capacity, StudyConfig

_MIN_ROUNDS: Final = 6  # with fewer rounds the signed-rank test cannot reach 95 %
_COMMIT_PREFIX: Final = "git:"
_TURNS_ON_HOST: Final = 8  # many short turns, because other programs on a host start and stop within a second
_HIDE_ALL_GPUS: Final = ("", "-1")  # values of HIP_VISIBLE_DEVICES and CUDA_VISIBLE_DEVICES
DEFAULT_FILE: Final = Path(".rocsolid/tune.db")


def tune(  # noqa: PLR0913 - all of them keywords
    workload: str,
    *,
    profile: str = "fast",
    plan: Plan | str | Path | None = None,
    settings: Mapping[str, str] | None = None,
    vary: Mapping[str, Sequence[str]] | Sequence[str] | None = None,
    exclude: Sequence[str] = (),
    space: str | Path | None = None,
    search: str | None = None,
    effort: Effort | None = None,
    limits: Limits | None = None,
    grad: bool = False,
    cold: bool = False,
    file: str | Path = DEFAULT_FILE,
    fresh: bool = False,
    engine: str = "",
    parallel_trials: int = 0,
    ranks: int = 1,
    progress: bool | OnStep | Progress = False,
) -> Study:
    """Find the best settings for a workload; each variant is tried in its own child process.

    A variant that hangs is ended at its deadline, one that crashes ends only its own process, and one with wrong results is rejected.
    The best variants are then compared in fresh processes that take turns. `study.best` is the plan of the best one.

    Args:
        workload: `file.py:function`, where the function returns `(callable, args, kwargs)`.
        profile: the profile of the baseline, from which the search starts.
        plan: a plan, or the path of one, as the baseline instead of the profile.
        settings: values that every variant has, by the setting's id, such as `{"inductor.freezing": "true"}`. The keys `form` and
            `graph` are allowed too. `form` is "eager", "compiled" or "regional" (only the repeated layers are compiled); with
            `graph` "true", the whole call is captured as a graph.
        vary: vary only these, with the values to try; without values, those that the catalogue suggests.
        exclude: settings not to vary.
        space: a TOML file with tables `set` and `vary` and a list `exclude`.
        search: 'tpe' (needs Optuna), 'one-at-a-time' or 'exhaustive'; 'tpe' by default if Optuna is installed.
        effort: budget, number of trials, finalists and rounds, and limits on the memory and set-up time of the best variant.
        limits: deadlines of the phases of a trial, and limits on its memory and processes.
        grad: leave gradients on; they are off by default, as for inference.
        cold: flush the GPU's caches before every call.
        file: where the study is stored: a file, or the URL of a PostgreSQL database. The same call resumes it.
        fresh: discard the results of an earlier run of this study.
        engine: '' for one trial at a time, 'local' for one on each visible GPU, 'ray' or 'ray://HOST:PORT' for a Ray cluster.
        parallel_trials: how many trials run at the same time; by default one for each GPU.
        ranks: processes of one trial, started as torchrun starts them; all have the same plan.
        progress: True shows on stderr what runs, how long it takes and the best so far; a function is called with each `rs.Step`.

    Example:
        >>> import rocsolid as rs
        >>> rs.tune("nowhere.py:build")
        Traceback (most recent call last):
        ...
        rocsolid.errors.InputError: the workload file nowhere.py does not exist

    """
    effort = effort or Effort()
    _check_numbers(effort.rounds, effort.min_gain, effort.trials, effort.budget_s)
    env = quick_environment()
    baseline_plan = select_plan(profile, plan, env)
    restrictions = _merge_restrictions(settings, vary, exclude, space)
    local_file = DEFAULT_FILE if is_server_url(file) else Path(file)
    remote = engine.startswith("ray")
    config, key = _study_config(
        workload, baseline_plan, env, restrictions, local_file, limits, grad=grad, cold=cold, ranks=ranks, remote=remote
    )
    search = search or ("tpe" if has_optuna() else "one-at-a-time")
    next_variant = make_search(search, config.space, second_objective=effort.second_objective)
    keep_out_of_git(local_file.parent)
    with (
        closing(open_store(file, key, workload)) as store,
        closing(_make_engine(engine, env, parallel_trials, ranks)) as runner,
    ):
        try:
            if fresh:
                store.clear()
            screening = Screening(config, next_variant, store, runner, effort)
            with _progress_for(progress, effort.budget_s) as callbacks:
                return run_study(config, screening, runner, search, effort, callbacks)
        except sqlite3.Error as error:
            msg = f"cannot read or write the study in {file}: {error}"
            raise CannotRunError(msg) from error


def _make_engine(name: str, env: Environment, parallel_trials: int, ranks: int) -> Engine:
    if ranks < 1 or parallel_trials < 0:
        option, number = ("--ranks", ranks) if ranks < 1 else ("--parallel-trials", parallel_trials)
        msg = f"{option} {number}: give at least 1"
        raise UsageError(msg)
    kind, address, _ = name.partition("://")
    if kind == "ray":
        from rocsolid.tune.ray_engine import RayEngine

        return RayEngine(name if address else "", ranks=ranks, parallel_trials=parallel_trials)
    if name == "local" or (parallel_trials and not name):
        return LocalEngine(gpu_slots(env.platform, len(_visible_devices(env)), ranks, parallel_trials))
    if name:
        raise UnknownNameError(kind="engine", name=name, known=["local", "ray", "ray://HOST:PORT"])
    return LocalEngine()


def ab(  # noqa: PLR0913 - all but three of them keywords
    workload: str,
    a: str,
    b: str,
    *,
    profile: str = "fast",
    rounds: int = 24,
    min_gain: float = 0.02,
    limits: Limits | None = None,
    grad: bool = False,
    progress: bool | OnStep | Progress = False,
) -> ABResult:
    """Compare two variants of one workload, a and b, in fresh processes that take turns; a second copy of `a` shows the noise.

    Args:
        workload: `file.py:function`.
        a: a profile, the path of a plan, or values that are added to `profile`, such as `inductor.freezing=true,form=compiled`;
            `git:REVISION` or `git:REVISION,...` uses the files of that commit.
        b: the other variant, written in the same way.
        profile: the profile to which the values of `a` and `b` are added.
        rounds: how often each variant is timed. A fresh process is started after each quarter of the rounds. While the verdict is
            UNSURE, all rounds are repeated, at most twice.
        min_gain: a smaller difference counts as none.
        limits: deadlines of the phases of a trial, and limits on its memory and processes.
        grad: leave gradients on.
        progress: True shows on stderr what runs, how long it takes and the best so far; a function is called with each `rs.Step`.

    Example:
        >>> import rocsolid as rs
        >>> rs.ab("nowhere.py:build", "safe", "fast")
        Traceback (most recent call last):
        ...
        rocsolid.errors.InputError: the workload file nowhere.py does not exist

    """
    _check_numbers(rounds, min_gain)
    env = quick_environment()
    sides = []
    with ExitStack() as trees:
        for key, text in (("a", a), ("b", b)):
            side_workload, variables, values = _check_out(workload, text, trees)
            plan, restrictions = _parse_side(values, profile, env)
            config, _ = _study_config(side_workload, plan, env, restrictions, DEFAULT_FILE, limits, grad=grad)
            choices: Choices = {}
            if plan.tuned is not None:
                choices = config.space.variant({FORM: plan.tuned.form, GRAPH: plan.tuned.graph})
            sides.append((text, replace(config, folder=config.folder / key, variables=variables), choices))
        keep_out_of_git(DEFAULT_FILE.parent)
        options = RaceOptions(
            rounds=rounds, turns=sides[0][1].turns, restart_every=max(1, rounds // 4), eliminate=False, budget_s=3600
        )
        with _progress_for(progress) as callbacks:
            result = run_ab_test((sides[0], sides[1]), options, min_gain, callbacks.on_step)
    name = WorkloadName.parse(workload)
    return replace(result, workload=f"{name.file.resolve()}:{name.function}")


@contextmanager
def _progress_for(progress: bool | OnStep | Progress, budget_s: float = 0.0) -> Iterator[Progress]:  # noqa: FBT001
    """Yield the callbacks of a study for the argument `progress=`; the command line passes its own."""
    if isinstance(progress, Progress):
        yield progress
        return
    best = ""

    def on_trial(update: TrialUpdate) -> None:
        nonlocal best
        best = fastest_so_far(update.finished)

    with steps_for(progress, budget_s=budget_s) as on_step:
        yield Progress(on_status=lambda text: on_step(Step(what=text, best=best)), on_trial=on_trial, on_step=on_step)


def keep_out_of_git(folder: Path) -> None:
    """Put a .gitignore into the default folder for studies and logs; does nothing in a folder that the user chose."""
    if folder.name == DEFAULT_FILE.parent.name:
        with suppress(OSError):  # opening the store afterwards reports what is wrong with the folder
            folder.mkdir(parents=True, exist_ok=True)
            if not (folder / ".gitignore").exists():
                (folder / ".gitignore").write_text("*\n", encoding="utf-8")


def _check_numbers(rounds: int, min_gain: float, trials: int = 1, budget_s: float = 1.0) -> None:
    msg = ""
    if rounds < _MIN_ROUNDS:
        msg = f"{rounds} rounds are too few for a reliable verdict; give at least {_MIN_ROUNDS}"
    elif not 0 <= min_gain < 1:
        msg = f"the minimum gain must be a ratio from 0 to 1 (0.02 means 2 %); got {min_gain:g}"
    elif trials < 1:
        msg = f"{trials} trials are too few; give at least 1"
    elif not budget_s > 0:
        msg = f"the budget is {budget_s:g} s; give more than 0, such as 10m"
    if msg:
        raise UsageError(msg)


def _merge_restrictions(
    settings: Mapping[str, str] | None,
    vary: Mapping[str, Sequence[str]] | Sequence[str] | None,
    exclude: Sequence[str],
    space: str | Path | None,
) -> Restrictions:
    from_file = read_restrictions(Path(space)) if space is not None else Restrictions()
    varied = vary if isinstance(vary, Mapping) else dict.fromkeys(vary or (), ())
    return Restrictions(
        fixed={**from_file.fixed, **(settings or {})},
        vary={**from_file.vary, **varied},
        exclude=(*from_file.exclude, *exclude),
    )


def _study_config(  # noqa: PLR0913 - a study has so many options
    workload: str,
    baseline_plan: Plan,
    env: Environment,
    restrictions: Restrictions,
    file: Path,
    limits: Limits | None,
    *,
    grad: bool = False,
    cold: bool = False,
    ranks: int = 1,
    remote: bool = False,
) -> tuple[StudyConfig, str]:
    """Return what all trials have in common, and the key under which the study is stored.

    The key is the same for the same options and the same code.
    """
    name = _existing_workload(workload)
    if not remote and find_spec("torch") is None:
        msg = "No module named 'torch'"
        raise ModuleNotFoundError(msg, name="torch")
    location = f"{name.file.resolve()}:{name.function}"
    space = build_space(baseline_plan, env, restrictions, on_device=_has_device(env, remote=remote))
    identity = [location, name.file.read_text(encoding="utf-8", errors="replace"), env.torch_version, grad, cold]
    identity += [encode(space.baseline_plan), [device.arch for device in _visible_devices(env)]]
    identity += [[knob.id, knob.values[0]] for knob in space.knobs if knob.id in (FORM, GRAPH)]  # those of the baseline
    identity += [ranks] if ranks > 1 else []
    key = hashlib.sha256(json.dumps(identity).encode()).hexdigest()
    folder = (file.parent / "tune" / key[:12]).resolve()
    config = StudyConfig(
        workload=location,
        space=space,
        folder=folder,
        limits=limits or Limits(),
        grad=grad,
        cold=cold,
        turns=1 if _visible_devices(env) else _TURNS_ON_HOST,
        ranks=ranks,
        capacity=_capacity(env) if ranks == 1 else Capacity(),
    )
    return config, key


def _existing_workload(workload: str) -> WorkloadName:
    name = WorkloadName.parse(workload)
    if not name.file.is_file():
        msg = f"the workload file {name.file} does not exist"
        raise InputError(msg)
    return name


def _has_device(env: Environment, *, remote: bool) -> bool:
    """Whether trials may have a GPU. A GPU build of torch does not mean that there is one."""
    if env.platform is Platform.CPU:
        return False
    return remote or bool(_visible_devices(env)) or (has_driver() and not _all_hidden(env))


def _visible_devices(env: Environment) -> tuple[Device, ...]:
    """Return the GPUs that trials can use; none if the user has hidden all of them."""
    return () if _all_hidden(env) else env.usable_devices


def _all_hidden(env: Environment) -> bool:
    value = os.environ.get(VISIBLE_DEVICES.get(env.platform, ""))
    return value is not None and value.strip() in _HIDE_ALL_GPUS


def _capacity(env: Environment) -> Capacity:
    device_bytes = min((device.memory_bytes for device in _visible_devices(env)), default=0)
    host = read_host(os.environ)
    processes = MAX_PROCESSES_PER_GPU.get(env.platform, DEFAULT_MAX_PROCESSES_PER_GPU)
    return Capacity(cores=host.cores, host_bytes=host.memory_bytes, device_bytes=device_bytes, processes=processes)


def _check_out(workload: str, text: str, trees: ExitStack) -> tuple[str, dict[str, str], str]:
    """Return the workload of a side, the environment variables of its processes, and the values that follow the commit."""
    if not text.startswith(_COMMIT_PREFIX):
        return workload, {}, text
    revision, _, values = text.removeprefix(_COMMIT_PREFIX).partition(",")
    name = _existing_workload(workload)
    tree_file = trees.enter_context(checked_out(name.file, revision))
    return f"{tree_file}:{name.function}", import_variables(tree_file, name.file), values


def _parse_side(text: str, profile: str, env: Environment) -> tuple[Plan, Restrictions]:
    """Parse a profile, the path of a plan, or values that are added to `profile`; empty text is `profile` itself."""
    if not text:
        return select_plan(profile, None, env), Restrictions()
    if text in {known.name for known in PROFILES}:
        return select_plan(text, None, env), Restrictions()
    if text.endswith(".toml"):
        return select_plan(profile, text, env), Restrictions()
    fixed = dict(pair.partition("=")[::2] for pair in text.split(";" if ";" in text else ",") if pair)
    if not all(fixed.values()):
        msg = f"{text!r} is not a profile, a .toml file or values such as inductor.freezing=true"
        raise UsageError(msg)
    return select_plan(profile, None, env), Restrictions(fixed=fixed)
