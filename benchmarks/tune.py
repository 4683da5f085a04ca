"""Tune public models and race `rs.optimize` with the plan against `rs.optimize` without it.

    python -m benchmarks.tune --minutes 10 --out evidence/tune-on-h200.json
    python -m benchmarks.tune --models tiny --minutes 3

A planted setting that hangs and one that gives wrong results must be classified as such.

Variants of all models are tried at the same time, because that uses cores and hardly the GPU. The races come afterwards, a few
models at a time: their processes are set up together, and then each race is timed alone while nothing else runs. A model for which
no time is left is reported as left out.
"""

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from rocsolid.measure.evidence import evidence, write

ROOT: Final = Path(__file__).resolve().parents[1]
for _folder in (ROOT, ROOT / "src"):  # a trial loads this file alone
    if str(_folder) not in sys.path:
        sys.path.insert(0, str(_folder))

import torch  # noqa: E402
from torch import nn  # noqa: E402

import rocsolid as rs  # noqa: E402
from benchmarks.models import MODELS, Built, built_on  # noqa: E402
from rocsolid.api.tune import _study_config  # noqa: E402
from rocsolid.catalog.profiles import resolve  # noqa: E402
from rocsolid.errors import RocsolidError  # noqa: E402
from rocsolid.measure.process_race import RaceOptions  # noqa: E402
from rocsolid.model.study import ABResult, Finalist, Study, TrialRecord  # noqa: E402
from rocsolid.model.timing import SpeedComparison, Verdict  # noqa: E402
from rocsolid.probe.quick_facts import quick_environment  # noqa: E402
from rocsolid.tune.ab_test import run_ab_test  # noqa: E402
from rocsolid.tune.effort import Effort, Progress, TrialUpdate  # noqa: E402
from rocsolid.tune.engine import LocalEngine  # noqa: E402
from rocsolid.tune.isolate.trial import Limits, run  # noqa: E402
from rocsolid.tune.screening import Screening  # noqa: E402
from rocsolid.tune.search import make_search  # noqa: E402
from rocsolid.tune.space import Restrictions  # noqa: E402
from rocsolid.tune.sqlite_store import SqliteStore  # noqa: E402
from rocsolid.tune.study import run_study  # noqa: E402
from rocsolid.tune.trials import StudyConfig  # noqa: E402

FIVE: Final = ("resnet50", "bert", "gpt2", "vit_b_16", "mobilenet_v3_large")
PLAN: Final = "BENCHMARK_PLAN"  # not ROCSOLID_...: such variables are settings
BEHAVIOUR: Final = (
    "TRITON_DEFAULT_FP_FUSION"  # a catalogued variable that eager does not read; carries the planted settings
)
# The forms that can win when the whole call is captured, and two settings that help one model and hurt another.
VARIED: Final[Mapping[str, Sequence[str]]] = {
    "form": ("compiled", "eager"),
    "inductor.freezing": (),
    "inductor.combo_kernels": (),
}
_ON_DEVICE: Final = torch.cuda.is_available()
_UNCHANGED: Final = {"form": "eager", "graph": "false"}  # the callable is neither compiled nor captured
_MIN_WAVE_S: Final = 60.0  # the least time that the races of a wave need
_REPEAT_S: Final = 35.0  # time to repeat an A/B test whose verdict is UNSURE
_MIN_RACE_S: Final = 60.0  # for a race and its set-up; a shorter race would cost nearly as much and give no verdict
_ROUNDS_PER_PROCESS: Final = 8
_PROCESSES: Final = 3  # of each side in a race
_TRIALS_TIME_SHARE: Final = 0.3  # share of the whole time that trials may use
_PARALLEL_TRIALS: Final = 2 if _ON_DEVICE else 1  # trials of one model at a time
# There are as many processes as cores, so each compiles in-process: a compile worker would first have to import torch.
_ONE_THREAD: Final = {"TORCHINDUCTOR_COMPILE_THREADS": "1", "OMP_NUM_THREADS": "1"}


def _tiny() -> Built:
    layers = [nn.Sequential(nn.Linear(64, 64), nn.GELU()) for _ in range(2)]
    return Built(nn.Sequential(*layers).eval(), (torch.randn(8, 64),))


def _build(name: str) -> tuple[nn.Module, tuple[Any, ...]]:
    if _ON_DEVICE and name != "tiny":
        return built_on(name, "cuda", "bfloat16")
    if not _ON_DEVICE:
        torch.set_num_threads(1)
    torch.manual_seed(0)
    built = (_tiny if name == "tiny" else MODELS[name])()
    return (built.model.cuda(), tuple(x.cuda() for x in built.inputs)) if _ON_DEVICE else (built.model, built.inputs)


def _plain(name: str) -> Any:
    model, inputs = _build(name)
    return model, inputs, {}


def _optimized(name: str) -> Any:
    """The model as `rs.optimize` returns it, with the plan named in the environment or without one."""
    model, inputs = _build(name)
    plan = os.environ.get(PLAN)
    with torch.no_grad():
        best = rs.optimize(model, inputs, plan=plan) if plan else rs.optimize(model, inputs)

    def call(*given: Any) -> Any:  # not a module: the checker would copy a module to compute double precision
        return best(*given)

    return call, inputs, {}


def planted() -> Any:
    """Return a workload that hangs or gives wrong results, depending on an environment variable."""
    model, inputs = _build("tiny")
    behaviour = os.environ.get(BEHAVIOUR, "")
    dtype = inputs[0].dtype
    calls = 0

    def call(x: Any) -> Any:
        nonlocal calls
        calls += 1
        while behaviour == "hang" and calls > 2:  # noqa: PLR2004 - the first calls are the reference
            pass
        result = model(x)
        is_variant = calls > 5  # noqa: PLR2004 - before, eager runs on two sets of inputs, twice, and with another seed
        in_higher_precision = result.dtype != dtype  # the run that judges a variant is right
        return result * 1.5 if behaviour == "wrong" and is_variant and not in_higher_precision else result

    return call, inputs, {}


for _name in ("tiny", *MODELS):  # the workloads that a trial loads by name
    globals()[_name] = partial(_plain, _name)
    globals()[f"{_name}_optimized"] = partial(_optimized, _name)


class Tuning:
    """The tuning of one model, in one thread: its trials run next to those of other models, its races run alone."""

    def __init__(self, name: str, restrictions: Restrictions, folder: Path, limits: Limits | None = None) -> None:
        self.name = name
        self._config = _make_config(name, restrictions, folder, limits)
        self._search = make_search("one-at-a-time", self._config.space)
        self._engine = LocalEngine([{}] * _PARALLEL_TRIALS)
        self._store = SqliteStore(folder / f"{name}.db", "study", name)
        self.seconds = {"trials": 0.0, "race": 0.0, "against rs.optimize": 0.0}

    def _screening(self, effort: Effort) -> Screening:
        return Screening(self._config, self._search, self._store, self._engine, effort)

    def screen(self, trials: int, until: float) -> None:
        """Try variants until the time is up."""
        begun = time.monotonic()
        effort = Effort(budget_s=max(20.0, until - begun), trials=trials)
        with ThreadPoolExecutor(1) as background:
            if self.name in MODELS:  # a first rs.optimize fills the compile caches for those in the race
                background.submit(run, self._whole().trial_spec({}), self._config.folder / "first")
            self._screening(effort).run(Progress(on_trial=partial(_print_trial, self.name)))
        self.seconds["trials"] = time.monotonic() - begun

    def _whole(self) -> StudyConfig:
        """The model as `rs.optimize` returns it, in processes that use the compile caches of the trials."""
        config = _make_config(f"{self.name}_optimized", Restrictions(fixed=_UNCHANGED), self._config.folder, None)
        return replace(
            config, variables=self._config.trial_spec({}).variables, parallel_setups=_PROCESSES if _ON_DEVICE else 1
        )

    def trials(self) -> list[TrialRecord]:
        """The finished trials."""
        return self._store.finished()

    def race(self, until: float, on_status: Callable[[str], None]) -> Study:
        """The final race between the variants tried so far."""
        begun = time.monotonic()
        effort = Effort(
            budget_s=max(_MIN_RACE_S, until - begun), trials=1, finalists=2, rounds=_ROUNDS_PER_PROCESS * _PROCESSES
        )
        study = run_study(
            self._config, self._screening(effort), self._engine, "one-at-a-time", effort, Progress(on_status=on_status)
        )
        self.seconds["race"] = time.monotonic() - begun
        return study

    def against_optimize(self, study: Study, until: float, on_status: Callable[[str], None]) -> dict[str, Any]:
        """`rs.optimize` with the plan, compared with `rs.optimize` without it."""
        begun = time.monotonic()
        file = self._config.folder / f"{self.name}.toml"
        study.best.save(file)
        config = self._whole()  # set-up time is not compared here
        without = replace(config, folder=config.folder / "without")
        with_plan = replace(config, folder=config.folder / "with", variables={**config.variables, PLAN: str(file)})
        left_s = max(_MIN_RACE_S, until - _REPEAT_S - begun)
        options = RaceOptions(
            rounds=_ROUNDS_PER_PROCESS * _PROCESSES,
            restart_every=_ROUNDS_PER_PROCESS,
            turns=config.turns,
            eliminate=False,
            budget_s=left_s,
        )
        result = run_ab_test(
            (("rs.optimize", without, {}), ("the plan", with_plan, {})),
            options,
            0.02,
            lambda step: on_status(step.what),
        )
        self.seconds["against rs.optimize"] = time.monotonic() - begun
        return {**_figures(result.b_against_a, result), "ms": [result.timing_a.median_ms, result.timing_b.median_ms]}

    def close(self) -> None:
        """End all processes and close the study."""
        self._engine.close()
        self._store.close()


class Wave:
    """A few models whose races are set up together; each race is timed alone, while nothing is being set up."""

    def __init__(self, models: int) -> None:
        self._barrier = threading.Barrier(models)
        self._timing = threading.Lock()
        self._started = threading.Event()
        self.until = self.left_s = 0.0

    def begin(self, until: float) -> None:
        """Start this wave; the waves before it are over."""
        self.until, self.left_s = until, until - time.monotonic()
        self._started.set()

    def wait(self) -> None:
        """Wait until the wave begins."""
        self._started.wait()

    def give_up(self) -> None:
        """Make the other models of this wave stop waiting, because one model has failed."""
        self._barrier.abort()

    @contextmanager
    def race(self, model: str) -> Iterator[Callable[[str], None]]:
        """One race of each model. Yields the status callback of the race, which waits for the other models before the first round."""
        timed = False

        def on_status(text: str) -> None:
            nonlocal timed
            if "could not" in text:
                print(f"  {model}: {text}"[:300], flush=True)
            if not timed and text.removeprefix("final comparison: ").startswith(("round", "timing")):
                self._barrier.wait()
                timed = self._timing.acquire()

        try:
            yield on_status
        finally:
            if timed:
                self._timing.release()
            else:
                self._barrier.wait()
            self._barrier.wait()


def _make_config(name: str, restrictions: Restrictions, folder: Path, limits: Limits | None) -> StudyConfig:
    env = quick_environment()
    config, _ = _study_config(
        f"{Path(__file__).resolve()}:{name}", resolve("fast", env), env, restrictions, folder / "tune.db", limits
    )
    return replace(config, folder=folder / name, variables=_ONE_THREAD)


def _figures(found: SpeedComparison, of: Finalist | ABResult) -> dict[str, Any]:
    return {
        "rounds": of.rounds,
        "processes": of.processes,
        "verdict": found.verdict.value,
        "speedup": round(found.speedup, 4),
        "low": round(found.low, 4),
        "high": round(found.high, 4),
        "noise": round(found.noise, 4),
    }


def _print_trial(name: str, update: TrialUpdate) -> None:
    record = update.record
    print(f"  {name}: {record.name}: {record.timing or f'{record.kind}, {record.reason}'}"[:200], flush=True)


def main() -> None:
    """Run everything within the given minutes; the exit code is 1 when a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", nargs="*", default=list(FIVE), help=f"of {', '.join(('tiny', *MODELS))}")
    parser.add_argument("--minutes", type=float, default=10.0, help="for the whole run")
    parser.add_argument("--together", type=int, default=2, help="models whose races are set up together")
    parser.add_argument("--trials", type=int, default=5, help="maximum number of variants of a model")
    parser.add_argument("--deadline", type=float, default=25.0, help="deadline of the planted hang, in seconds")
    parser.add_argument("--out", type=Path, help="write the record here")
    args = parser.parse_args()
    begun = time.monotonic()
    over = begun + 60 * args.minutes - 20
    with tempfile.TemporaryDirectory() as folder:
        record = _run(args, Path(folder), begun, over)
    record["seconds"] = round(time.monotonic() - begun)
    if args.out:
        write(record, args.out)
    print(json.dumps({name: record[name] for name in ("planted", "missed", "seconds")}))
    sys.exit(bool(record["missed"]))


def _run(args: argparse.Namespace, folder: Path, begun: float, over: float) -> dict[str, Any]:
    planted_settings = Restrictions(fixed=_UNCHANGED, vary={f"process.{BEHAVIOUR}": ("hang", "wrong")})
    limits = Limits(phases={**Limits().phases, "build": args.deadline})
    screened_by = begun + max(45.0, _TRIALS_TIME_SHARE * (over - begun))
    all_screened = threading.Barrier(len(args.models) + 2)

    def tune_model(name: str, wave: Wave) -> dict[str, Any]:
        with closing(Tuning(name, Restrictions(vary=VARIED), folder)) as tuning:
            try:
                try:
                    tuning.screen(args.trials, screened_by)
                finally:
                    all_screened.wait()
                wave.wait()
                found = _raced(tuning, wave) if wave.left_s > _MIN_WAVE_S else _left_out(tuning, wave.left_s)
            except BaseException:
                wave.give_up()
                raise
            print(json.dumps(found), flush=True)
            return found

    def tune_planted() -> dict[str, str]:
        with closing(Tuning("planted", planted_settings, folder, limits)) as tuning:
            try:
                tuning.screen(3, screened_by)
            finally:
                all_screened.wait()
            return {trial.name.rpartition("=")[2]: trial.kind for trial in tuning.trials()}

    groups = [args.models[at : at + args.together] for at in range(0, len(args.models), args.together)]
    waves = [Wave(len(group)) for group in groups]
    with ThreadPoolExecutor(len(args.models) + 1) as pool:
        running = [
            [pool.submit(tune_model, name, wave) for name in group] for group, wave in zip(groups, waves, strict=True)
        ]
        classified = pool.submit(tune_planted)
        all_screened.wait()
        found = []
        for number, wave in enumerate(waves):
            now, to_come = time.monotonic(), sum(map(len, groups[number:]))
            wave.begin(now + (over - now) * len(groups[number]) / to_come)
            found += [tuning.result() for tuning in running[number]]
        record = {**_about(args), "planted": classified.result(), "models": found}
    return {**record, "missed": list(_missed(record))}


def _raced(tuning: Tuning, wave: Wave) -> dict[str, Any]:
    found: dict[str, Any] = {"model": tuning.name}
    study: Study | None = None
    try:
        with wave.race(tuning.name) as on_status:
            study = tuning.race(wave.until, on_status)
            found |= {"winner": study.winner, "verdict": study.verdict.value, "why": study.reason, "noise": study.noise}
            found["finalists"] = {
                f.name: _figures(f.against_baseline, f) for f in study.finalists if f.against_baseline
            }
    except RocsolidError as failed:
        found["failed"] = str(failed)
    try:
        with wave.race(tuning.name) as on_status:
            found |= {"against rs.optimize": tuning.against_optimize(study, wave.until, on_status)} if study else {}
    except RocsolidError as failed:
        found["failed"] = str(failed)
    found["rejected"] = {t.name: f"{t.kind}: {t.reason}"[:200] for t in tuning.trials() if not t.measured}
    found["trials"] = {t.name: _costs(t) for t in tuning.trials()}
    return {**found, "seconds": {k: round(v, 1) for k, v in tuning.seconds.items()}}


def _costs(trial: TrialRecord) -> dict[str, Any]:
    phases = {name: round(taken, 1) for name, taken in trial.phases.items()}
    return {"seconds": phases, "host_mib": trial.host_bytes >> 20, "device_mib": trial.peak_bytes >> 20}


def _left_out(tuning: Tuning, left_s: float) -> dict[str, Any]:
    return {"model": tuning.name, "failed": f"left out: only {left_s:.0f} s were left", "trials": len(tuning.trials())}


def _missed(record: dict[str, Any]) -> Any:
    if record["planted"] != {"baseline": "measured", "hang": "timed out", "wrong": "wrong result"}:
        yield f"planted settings were classified as {record['planted']}"
    for model in record["models"]:
        result = model.get("against rs.optimize", {})
        if model.get("failed"):
            yield f"{model['model']}: {model['failed']}"
        elif result["verdict"] == Verdict.SLOWER.value:
            yield f"{model['model']}: the plan is slower than rs.optimize"


def _about(args: argparse.Namespace) -> dict[str, Any]:
    return evidence(
        what="models tuned, then rs.optimize with the plan compared with rs.optimize without it, in fresh processes that took "
        "turns; a planted setting that hangs and one that gives wrong results",
        command=f"python -m benchmarks.tune --models {' '.join(args.models)} --minutes {args.minutes:g}",
    )


if __name__ == "__main__":
    main()
