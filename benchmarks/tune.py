"""Tune public models, and race what was found against `rs.optimize` without it; planted settings that hang or lie must be named.

    python -m benchmarks.tune --minutes 10 --out evidence/tune-on-h200.json
    python -m benchmarks.tune --models tiny --minutes 3

Variants of all models are tried beside each other, since that costs cores and not the device. The races come afterwards, a few
models at a time: their processes are set up together, and then each race is timed alone while nothing else runs. A model for which
no time is left is said to be left out.
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
for _folder in (ROOT, ROOT / "src"):  # a trial is given this file alone
    if str(_folder) not in sys.path:
        sys.path.insert(0, str(_folder))

import torch  # noqa: E402
from torch import nn  # noqa: E402

import rocsolid as rs  # noqa: E402
from benchmarks.models import MODELS, Built, built_on  # noqa: E402
from rocsolid.api.tune import _job  # noqa: E402
from rocsolid.catalog.profiles import resolve  # noqa: E402
from rocsolid.errors import RocsolidError  # noqa: E402
from rocsolid.measure.process_race import Rules  # noqa: E402
from rocsolid.model.study import Duel, Finalist, Study, TrialRecord  # noqa: E402
from rocsolid.model.timing import Comparison, Verdict  # noqa: E402
from rocsolid.probe.quick_facts import quick_environment  # noqa: E402
from rocsolid.tune.ab_test import run_duel  # noqa: E402
from rocsolid.tune.effort import Effort, Progress  # noqa: E402
from rocsolid.tune.engine import Local  # noqa: E402
from rocsolid.tune.isolate.trial import Limits, run  # noqa: E402
from rocsolid.tune.screening import Screening  # noqa: E402
from rocsolid.tune.search import search_of  # noqa: E402
from rocsolid.tune.space import Narrowing  # noqa: E402
from rocsolid.tune.sqlite_store import FileStore  # noqa: E402
from rocsolid.tune.study import run_study  # noqa: E402
from rocsolid.tune.trials import Job  # noqa: E402

FIVE: Final = ("resnet50", "bert", "gpt2", "vit_b_16", "mobilenet_v3_large")
PLAN: Final = "BENCHMARK_PLAN"  # variables that begin with our name are settings
WISH: Final = (
    "TRITON_DEFAULT_FP_FUSION"  # a catalogued variable that eager does not read: it carries the planted settings
)
# The forms that may win with a whole-call graph, and two settings that help one model and hurt another.
VARIED: Final[Mapping[str, Sequence[str]]] = {
    "form": ("compiled", "eager"),
    "inductor.freezing": (),
    "inductor.combo_kernels": (),
}
_ON_DEVICE: Final = torch.cuda.is_available()
_AS_IT_IS: Final = {"form": "eager", "graph": "false"}  # what is given is called, and nothing is made of it
_LATER_S: Final = 60.0  # what the races of a few models need at least
_ONCE_MORE_S: Final = 35.0  # what it takes to go on with a race that is unsure
_LEAST_S: Final = 60.0  # for a race and its set-up: cut short, it would have cost nearly as much and say nothing
_LIFE: Final = 8  # rounds of one process
_LIVES: Final = 3  # processes of each side in a race
_FOR_TRIALS: Final = 0.3  # of the time
_SLOTS: Final = 2 if _ON_DEVICE else 1  # trials of one model at a time
# There are as many processes as cores, so each compiles by itself: a compiler beside it would first have to import torch.
_ALONE: Final = {"TORCHINDUCTOR_COMPILE_THREADS": "1", "OMP_NUM_THREADS": "1"}


def _tiny() -> Built:
    layers = [nn.Sequential(nn.Linear(64, 64), nn.GELU()) for _ in range(2)]
    return Built(nn.Sequential(*layers).eval(), (torch.randn(8, 64),))


def _on_here(name: str) -> tuple[nn.Module, tuple[Any, ...]]:
    if _ON_DEVICE and name != "tiny":
        return built_on(name, "cuda", "bfloat16")
    if not _ON_DEVICE:
        torch.set_num_threads(1)
    torch.manual_seed(0)
    built = (_tiny if name == "tiny" else MODELS[name])()
    return (built.model.cuda(), tuple(x.cuda() for x in built.inputs)) if _ON_DEVICE else (built.model, built.inputs)


def _plain(name: str) -> Any:
    model, inputs = _on_here(name)
    return model, inputs, {}


def _optimized(name: str) -> Any:
    """The model as a user has it: with the plan that the environment names, or without one."""
    model, inputs = _on_here(name)
    plan = os.environ.get(PLAN)
    with torch.no_grad():
        best = rs.optimize(model, inputs, plan=plan) if plan else rs.optimize(model, inputs)

    def call(*given: Any) -> Any:  # a module would be copied to see what it answers in double precision
        return best(*given)

    return call, inputs, {}


def planted() -> Any:
    """Hangs or lies when it is told to."""
    model, inputs = _on_here("tiny")
    wish = os.environ.get(WISH, "")
    calls = 0

    def call(x: Any) -> Any:
        nonlocal calls
        calls += 1
        while wish == "hang" and calls > 2:  # noqa: PLR2004 - the first calls are the reference
            pass
        return model(x) * (1.5 if wish == "wrong" and calls > 4 else 1)  # noqa: PLR2004

    return call, inputs, {}


for _name in ("tiny", *MODELS):  # what a trial finds by name
    globals()[_name] = partial(_plain, _name)
    globals()[f"{_name}_optimized"] = partial(_optimized, _name)


class Tuning:
    """One model on its way: tried beside the others, raced alone. It lives in one thread."""

    def __init__(self, name: str, said: Narrowing, folder: Path, limits: Limits | None = None) -> None:
        self.name = name
        self._job = _made(name, said, folder, limits)
        self._search = search_of("one-at-a-time", self._job.space)
        self._engine = Local([{}] * _SLOTS)
        self._store = FileStore(folder / f"{name}.db", "study", name)
        self.seconds = {"trials": 0.0, "race": 0.0, "against rs.optimize": 0.0}

    def _screening(self, effort: Effort) -> Screening:
        return Screening(self._job, self._search, self._store, self._engine, effort)

    def screen(self, trials: int, until: float) -> None:
        """Try variants until the time is over."""
        begun = time.monotonic()
        effort = Effort(budget_s=max(20.0, until - begun), trials=trials)
        with ThreadPoolExecutor(1) as beside:
            if self.name in MODELS:  # a first rs.optimize, whose compiled code those in the race will find
                beside.submit(run, self._whole().errand({}), self._job.folder / "first")
            self._screening(effort).run(Progress(trial=partial(_told, self.name)))
        self.seconds["trials"] = time.monotonic() - begun

    def _whole(self) -> Job:
        """The model as `rs.optimize` makes it, in processes that find the compiled code of the trials."""
        job = _made(f"{self.name}_optimized", Narrowing(fixed=_AS_IT_IS), self._job.folder, None)
        return replace(job, variables=self._job.errand({}).variables, at_once=_LIVES if _ON_DEVICE else 1)

    def trials(self) -> list[TrialRecord]:
        """What was tried."""
        return self._store.done()

    def race(self, until: float, told: Callable[[str], None]) -> Study:
        """The finals, of what was tried so far."""
        begun = time.monotonic()
        effort = Effort(budget_s=max(_LEAST_S, until - begun), trials=1, finalists=2, rounds=_LIFE * _LIVES)
        study = run_study(
            self._job, self._screening(effort), self._engine, "one-at-a-time", effort, Progress(phase=told)
        )
        self.seconds["race"] = time.monotonic() - begun
        return study

    def against_optimize(self, study: Study, until: float, told: Callable[[str], None]) -> dict[str, Any]:
        """The plan in the user's hands, beside the same call without it."""
        begun = time.monotonic()
        file = self._job.folder / f"{self.name}.toml"
        study.best.save(file)
        job = self._whole()  # set-up is not what is compared here
        without = replace(job, folder=job.folder / "without")
        with_it = replace(job, folder=job.folder / "with", variables={**job.variables, PLAN: str(file)})
        left_s = max(_LEAST_S, until - _ONCE_MORE_S - begun)
        rules = Rules(rounds=_LIFE * _LIVES, renew_every=_LIFE, turns=job.turns, drop=False, budget_s=left_s)
        duel = run_duel((("rs.optimize", without, {}), ("the plan", with_it, {})), rules, 0.02, told)
        self.seconds["against rs.optimize"] = time.monotonic() - begun
        return {**_figures(duel.b_against_a, duel), "ms": [duel.timing_a.median_ms, duel.timing_b.median_ms]}

    def close(self) -> None:
        """Nothing is left running."""
        self._engine.close()
        self._store.close()


class Wave:
    """A few models whose races are set up beside each other; each is timed alone, while nothing is set up."""

    def __init__(self, models: int) -> None:
        self._met = threading.Barrier(models)
        self._alone = threading.Lock()
        self._begun = threading.Event()
        self.until = self.left_s = 0.0

    def begin(self, until: float) -> None:
        """Those before it are over."""
        self.until, self.left_s = until, until - time.monotonic()
        self._begun.set()

    def wait(self) -> None:
        """Until it begins."""
        self._begun.wait()

    def give_up(self) -> None:
        """A model of it is lost; the others need not wait for it."""
        self._met.abort()

    @contextmanager
    def race(self, model: str) -> Iterator[Callable[[str], None]]:
        """For one race of each model: yields who is to hear how it goes on, and waits for the others at the first round."""
        timed = False

        def told(said: str) -> None:
            nonlocal timed
            if "could not" in said:
                print(f"  {model}: {said}"[:300], flush=True)
            if not timed and said.startswith("round"):
                self._met.wait()
                timed = self._alone.acquire()

        try:
            yield told
        finally:
            if timed:
                self._alone.release()
            else:
                self._met.wait()
            self._met.wait()


def _made(name: str, said: Narrowing, folder: Path, limits: Limits | None) -> Job:
    env = quick_environment()
    job, _ = _job(f"{Path(__file__).resolve()}:{name}", resolve("fast", env), env, said, folder / "tune.db", limits)
    return replace(job, folder=folder / name, variables=_ALONE)


def _figures(said: Comparison, of: Finalist | Duel) -> dict[str, Any]:
    return {
        "rounds": of.rounds,
        "processes": of.processes,
        "verdict": said.verdict.value,
        "speedup": round(said.speedup, 4),
        "low": round(said.low, 4),
        "high": round(said.high, 4),
        "noise": round(said.noise, 4),
    }


def _told(name: str, record: TrialRecord, *_: object) -> None:
    print(f"  {name}: {record.name}: {record.timing or f'{record.kind}, {record.reason}'}"[:200], flush=True)


def main() -> None:
    """Everything, within the minutes given; the exit code is 1 when a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", nargs="*", default=list(FIVE), help=f"of {', '.join(('tiny', *MODELS))}")
    parser.add_argument("--minutes", type=float, default=10.0, help="for all of it")
    parser.add_argument("--beside", type=int, default=2, help="models whose races are set up together")
    parser.add_argument("--trials", type=int, default=5, help="variants of a model, at most")
    parser.add_argument("--deadline", type=float, default=25.0, help="seconds that the planted hang is given")
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
    lies = Narrowing(fixed=_AS_IT_IS, vary={f"process.{WISH}": ("hang", "wrong")})
    limits = Limits(phases={**Limits().phases, "build": args.deadline})
    screened_by = begun + max(45.0, _FOR_TRIALS * (over - begun))
    all_screened = threading.Barrier(len(args.models) + 2)

    def one(name: str, wave: Wave) -> dict[str, Any]:
        with closing(Tuning(name, Narrowing(vary=VARIED), folder)) as tuning:
            try:
                try:
                    tuning.screen(args.trials, screened_by)
                finally:
                    all_screened.wait()
                wave.wait()
                found = _raced(tuning, wave) if wave.left_s > _LATER_S else _left_out(tuning, wave.left_s)
            except BaseException:
                wave.give_up()
                raise
            print(json.dumps(found), flush=True)
            return found

    def fake() -> dict[str, str]:
        with closing(Tuning("planted", lies, folder, limits)) as tuning:
            try:
                tuning.screen(3, screened_by)
            finally:
                all_screened.wait()
            return {trial.name.rpartition("=")[2]: trial.kind for trial in tuning.trials()}

    groups = [args.models[at : at + args.beside] for at in range(0, len(args.models), args.beside)]
    waves = [Wave(len(group)) for group in groups]
    with ThreadPoolExecutor(len(args.models) + 1) as beside:
        running = [
            [beside.submit(one, name, wave) for name in group] for group, wave in zip(groups, waves, strict=True)
        ]
        lied = beside.submit(fake)
        all_screened.wait()
        found = []
        for number, wave in enumerate(waves):
            now, to_come = time.monotonic(), sum(map(len, groups[number:]))
            wave.begin(now + (over - now) * len(groups[number]) / to_come)
            found += [tuning.result() for tuning in running[number]]
        record = {**_about(args), "planted": lied.result(), "models": found}
    return {**record, "missed": list(_missed(record))}


def _raced(tuning: Tuning, wave: Wave) -> dict[str, Any]:
    found: dict[str, Any] = {"model": tuning.name}
    study: Study | None = None
    try:
        with wave.race(tuning.name) as told:
            study = tuning.race(wave.until, told)
            found |= {"winner": study.winner, "verdict": study.verdict.value, "why": study.why, "noise": study.noise}
            found["finalists"] = {f.name: _figures(f.against_start, f) for f in study.finalists if f.against_start}
    except RocsolidError as failed:
        found["failed"] = str(failed)
    try:
        with wave.race(tuning.name) as told:
            found |= {"against rs.optimize": tuning.against_optimize(study, wave.until, told)} if study else {}
    except RocsolidError as failed:
        found["failed"] = str(failed)
    found["rejected"] = {t.name: f"{t.kind}: {t.reason}"[:200] for t in tuning.trials() if not t.measured}
    found["trials"] = {t.name: _costs(t) for t in tuning.trials()}
    return {**found, "seconds": {k: round(v, 1) for k, v in tuning.seconds.items()}}


def _costs(trial: TrialRecord) -> dict[str, Any]:
    phases = {name: round(taken, 1) for name, taken in trial.phases.items()}
    return {"seconds": phases, "host_mib": trial.host_bytes >> 20, "device_mib": trial.peak_bytes >> 20}


def _left_out(tuning: Tuning, left_s: float) -> dict[str, Any]:
    return {"model": tuning.name, "failed": f"left out: {left_s:.0f} s were left", "trials": len(tuning.trials())}


def _missed(record: dict[str, Any]) -> Any:
    if record["planted"] != {"start": "measured", "hang": "timed out", "wrong": "wrong result"}:
        yield f"planted settings came to {record['planted']}"
    for model in record["models"]:
        beside = model.get("against rs.optimize", {})
        if model.get("failed"):
            yield f"{model['model']}: {model['failed']}"
        elif beside["verdict"] == Verdict.SLOWER.value:
            yield f"{model['model']}: the plan is slower than rs.optimize"


def _about(args: argparse.Namespace) -> dict[str, Any]:
    return evidence(
        what="models tuned, then rs.optimize with the plan beside rs.optimize without it, in fresh processes that took turns; "
        "a planted setting that hangs and one that answers wrongly",
        command=f"python -m benchmarks.tune --models {' '.join(args.models)} --minutes {args.minutes:g}",
    )


if __name__ == "__main__":
    main()
