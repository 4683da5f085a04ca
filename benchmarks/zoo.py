"""Which models of public libraries can be captured: small ones with random weights, in processes that may crash.

    python -m benchmarks.zoo                                   # everything that is installed; continues an interrupted run
    python -m benchmarks.zoo --library timm --only 'vit*' --results /tmp/vit.jsonl
    python -m benchmarks.zoo --jobs 12 --deadline 40 --stop-after 520   # on a GPU with 16 cores and 10 minutes
    python -m benchmarks.zoo --again /tmp/vit.jsonl --results /tmp/again.jsonl   # only what was not captured whole
    python -m benchmarks.zoo --evidence evidence/zoo-on-cpu.json

A model runs in eager, then through `rs.capture` with the defaults of its library: on a GPU as a graph, elsewhere with the record backend.
Two calls with fresh inputs are compared with a separate eager copy. "In segments" means that modules run in eager between graphs, or in
another form. If a model has a cache, then `use_cache=False` is tried as well; with --optimize also `rs.optimize`, which learns from the
first call, except for a model with `generate`: that gets an example.

`transformers generate` and `diffusers pipelines` are whole programs (`benchmarks/zoo_programs.py`): each is optimized in place, with parts
that are captured. `generate` is *in segments* if the loop of transformers runs and replays only the model.
"""

import argparse
import copy
import fnmatch
import gc
import importlib
import json
import logging
import multiprocessing
import os
import signal
import sys
import time
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Final

# So that a library that looks for a GPU when it is imported does not initialize CUDA, which no forked child could use after that.
os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")

OUTCOMES: Final = ("captured", "in segments", "refused", "wrong", "crashed", "hung", "eager fails")
_NOT_MISSED: Final = ("captured", "eager fails")
_CALLS: Final = 4  # one that is captured, one that rocsolid compares itself, and replays
_REPLAYS: Final = 2
_MODELS_PER_WORKER: Final = 30
Row = dict[str, Any]


def measure_program(attempts: Iterator[Any], *, optimize: bool = False, on_eager: Callable[[Row], object] = id) -> Row:
    """Build a program, run it in eager, optimize a copy, and compare its calls."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_num_threads(1)
    torch.manual_seed(0)
    row: Row = {"outcome": "eager fails", "message": "no program was made"}
    for attempt in _until_error(attempts, row):
        try:
            plain = attempt.program.to(device)
            first, second = (attempt.call(plain, 0) for _ in range(2))
        except Exception as error:  # noqa: BLE001 - whatever a program raises
            row["message"] = _first_line(error)
            continue
        if found := _difference(first, second):
            row["message"] = f"two eager runs differ: {found}"
            continue
        row = {"class": type(plain).__name__, "eager_s": 0.0}
        on_eager(row)
        backend = "auto" if device == "cuda" else "record"
        row |= _program_outcome(attempt, plain, partial(attempt.optimize, backend=backend))
        if optimize:
            import rocsolid as rs

            again = _program_outcome(attempt, plain, rs.optimize)
            row |= {f"optimize: {key}": again[key] for key in ("outcome", "message") if again.get(key)}
        return row
    return row


def _until_error(attempts: Iterator[Any], row: Row) -> Iterator[Any]:
    """Yield attempts until the builder raises, whose message is kept if there is no other one."""
    try:
        yield from attempts
    except Exception as error:  # noqa: BLE001 - of a library
        row["message"] = _first_line(error)


def _program_outcome(attempt: Any, plain: Any, optimize: Callable[[Any], Any]) -> Row:
    """Optimize a copy of a program, and compare its calls with those of the plain one."""
    begun = time.perf_counter()
    try:
        fast = optimize(copy.deepcopy(plain))
        for seed in range(_CALLS):
            got, want = attempt.call(fast, seed), attempt.call(plain, seed)
            if (found := _difference(got, want)) and not attempt.is_near_tie(plain, seed, got):
                return {"outcome": "wrong", "message": f"call {seed + 1}: {found}"}
        report = fast.explain()
    except Exception as error:  # noqa: BLE001 - eager did not raise
        return {"outcome": "crashed", "message": f"{type(error).__name__}: {_first_line(error)}"}
    row = {"seconds": round(time.perf_counter() - begun, 2)}
    main = [part for part in report.parts if part.name in ("decode step", "unet", "transformer")]
    left = [f"{part.name}: {part.detail}" for part in report.parts if not part.optimized]
    if not any(part.optimized for part in main):
        return {**row, "outcome": "refused", "reason": "program", "message": next(iter(left), "")[:300]}
    in_loop = next((why for why in left if why.startswith("decode loop: ")), "")
    return {**row, "outcome": "in segments", "message": in_loop} if in_loop else {**row, "outcome": "captured"}


def measure(attempts: Iterator[Any], *, optimize: bool = False, on_eager: Callable[[Row], object] = id) -> Row:
    """Build a model, run it in eager, capture it, and compare its calls with an eager copy. `on_eager` gets what eager did."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_num_threads(1)
    torch.manual_seed(0)
    row, model, make = _first_that_runs(attempts, device)
    if model is None:
        return row
    on_eager(row)
    row |= _tried(model, make, device)
    if getattr(getattr(model, "config", None), "use_cache", False) and row["outcome"] != "captured":

        def without_cache() -> Any:
            args, kwargs = make()
            return args, {**kwargs, "use_cache": False}

        again = _tried(model, without_cache, device)
        row |= {f"without cache: {key}": again[key] for key in ("outcome", "message") if again.get(key)}
    if optimize:
        row |= {f"optimize: {key}": value for key, value in _optimized(model, make, device).items()}
    return row


def _first_that_runs(attempts: Iterator[Any], device: str) -> tuple[Row, Any, Any]:
    """The first attempt that eager can run twice with the same result; without one, the first error."""
    message = ""
    while True:
        try:
            model, make = next(attempts)
            model = model.eval().to(device)
            begun = time.perf_counter()
            first = _call(model, make, 0)
            eager_s = time.perf_counter() - begun
            second = _call(copy.deepcopy(model), make, 0)
            found = _difference(first, second) and _difference(second, first, want_again=second)
        except StopIteration:
            return {"outcome": "eager fails", "message": message or "no inputs are known for it"}, None, None
        except Exception as error:  # noqa: BLE001 - whatever a model raises
            message = message or _first_line(error)
            if _is_exhausted(attempts):
                return {"outcome": "eager fails", "message": message}, None, None
            continue
        if not found:
            return {"class": type(model).__name__, "eager_s": round(eager_s, 3)}, model, make
        message = f"two eager runs differ: {found}"


def _is_exhausted(attempts: Any) -> bool:
    return getattr(attempts, "gi_frame", True) is None  # a generator that raised yields nothing more


def _call(model: Any, make: Callable[[], Any], seed: int) -> Any:
    """Call a model with the inputs of this seed, with the random numbers of this seed."""
    import torch

    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    torch.manual_seed(seed)
    args, kwargs = _moved(make(), device)
    torch.manual_seed(seed)
    with torch.no_grad():
        return model(*args, **kwargs)


def _moved(value: Any, device: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(_moved(item, device) for item in value)
    if isinstance(value, dict):
        return {key: _moved(item, device) for key, item in value.items()}
    return value.to(device) if hasattr(value, "to") else value


def _difference(got: Any, want: Any, want_again: Any = None) -> str:
    """How two results differ; empty when they are equal. Objects such as configs are not compared.

    With another eager result for the same inputs, a difference as between the two is allowed: atomic additions on a GPU.
    """
    from rocsolid.numerics import Tolerance, compare, noise_between, result_leaves

    leaves = [[leaf for leaf in result_leaves(x) if _is_data(leaf.value)] for x in (got, want, want_again)]
    noise = noise_between(leaves[1], leaves[2]) if want_again is not None else None
    return next(iter(compare(leaves[1], leaves[0], Tolerance(), noise).mismatches), "")


def _is_data(value: Any) -> bool:
    import torch

    return isinstance(value, (torch.Tensor, bool, int, float, str, type(None)))


def _tried(model: Any, make: Callable[[], Any], device: str) -> Row:
    """Capture a model, and compare its calls with an eager copy."""
    import rocsolid as rs

    begun = time.perf_counter()
    captured = rs.capture(copy.deepcopy(model), backend="auto" if device == "cuda" else "record", on_error="raise")
    row = _compared(captured, copy.deepcopy(model), make)
    row["seconds"] = round(time.perf_counter() - begun, 2)
    return row


def _compared(captured: Any, eager: Any, make: Callable[[], Any]) -> Row:
    """Call a captured model and its eager copy; returns the outcome."""
    from rocsolid.errors import CaptureError

    try:
        for seed in range(_CALLS):
            got, want = _call(captured, make, seed), _call(eager, make, seed)
            if _difference(got, want) and (found := _difference(got, want, _call(eager, make, seed))):
                return {"outcome": "wrong", "message": f"call {seed + 1}: {found}"}
    except CaptureError as error:
        return _refused(captured.rocsolid.report(), error)
    except Exception as error:  # noqa: BLE001 - eager did not raise
        return {"outcome": "crashed", "message": f"{type(error).__name__}: {_first_line(error)}"}
    report = captured.rocsolid.report()
    if report.replays < _REPLAYS:
        why = report.invalidated[-1] if report.invalidated else f"{report.replays} replays in {_CALLS} calls"
        return {"outcome": "refused", "reason": "invalidated", "message": why}
    row: Row = {"outcome": "captured", "nodes": report.graphs[0].nodes}
    if report.workarounds:
        why = report.workarounds[0]
        kinds = sorted({found.kind for found in report.workarounds})
        place = f" ({Path(why.location).name})" if why.location else ""
        reason = why.reason.value if why.reason else ""
        row |= {"outcome": "in segments", "reason": reason, "message": why.why + place, "eager_modules": kinds}
    return row


def _refused(report: Any, error: Exception) -> Row:
    refusal = report.refusals[0] if report.refusals else None
    place = f" ({Path(refusal.location).name})" if refusal and refusal.location else ""
    reason = refusal.reason.value if refusal else "error"
    return {"outcome": "refused", "reason": reason, "message": _first_line(error) + place}


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).partition("\n")[0][:300]


def _optimized(model: Any, make: Callable[[], Any], device: str) -> Row:
    """Optimize a model for one call, and compare other calls with an eager copy."""
    import torch

    import rocsolid as rs

    begun = time.perf_counter()
    try:
        args, kwargs = _moved(make(), device)
        with torch.no_grad():
            example = [(args, kwargs)] if hasattr(model, "generate") else []
            fast = rs.optimize(copy.deepcopy(model), *example)
            if not example:  # it learns from its first call
                _call(fast, make, 0)
        found = [_difference(_call(fast, make, seed), _call(model, make, seed)) for seed in range(1, _CALLS)]
    except Exception as error:  # noqa: BLE001 - eager did not raise
        return {"outcome": "crashed", "message": f"{type(error).__name__}: {_first_line(error)}"}
    wrong = next(filter(None, found), "")
    report = getattr(fast, "report", lambda: None)()
    form = getattr(getattr(report, "chosen", None), "value", "as a program")
    return {"outcome": "wrong" if wrong else form, "message": wrong, "s": round(time.perf_counter() - begun, 1)}


def _serve(tasks: Connection, *, optimize: bool) -> None:
    """Measure one model after the other in a forked process, and send their rows."""
    os.setsid()
    with Path(os.devnull).open("w") as nowhere:
        for stream in (1, 2):
            os.dup2(nowhere.fileno(), stream)
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    from benchmarks.zoo_models import LIBRARIES
    from benchmarks.zoo_programs import PROGRAMS

    while True:
        library, name = tasks.recv()
        try:
            if library in PROGRAMS:
                row = measure_program(PROGRAMS[library][1](name), optimize=optimize, on_eager=tasks.send)
            else:
                row = measure(LIBRARIES[library][1](name), optimize=optimize, on_eager=tasks.send)
        except Exception as error:  # noqa: BLE001 - a mistake of ours is a row, too
            row = {"outcome": "crashed", "message": f"{type(error).__name__}: {_first_line(error)}"}
        _free_memory()
        tasks.send(row)


def _free_memory() -> None:
    import torch

    torch.compiler.reset()
    gc.collect()
    if torch.cuda.is_available():
        with suppress(RuntimeError):  # a CUDA error, which is in the row
            torch.cuda.empty_cache()


class _Worker:
    """A forked process that measures models one after the other, so that it imports libraries and starts CUDA once."""

    def __init__(self, *, optimize: bool) -> None:
        context = multiprocessing.get_context("fork")
        self.pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,), kwargs={"optimize": optimize})
        self._process.start()
        theirs.close()
        self._measured = 0
        self._must_end = False
        self.model: tuple[str, str] = ("", "")
        self.row: Row = {}
        self._begun = 0.0

    def begin(self, model: tuple[str, str]) -> None:
        """Measure this model."""
        self.model = model
        self.row = {"library": model[0], "model": model[1]}
        self._measured += 1
        self._begun = time.monotonic()
        with suppress(BrokenPipeError):
            self.pipe.send(model)

    @property
    def is_new(self) -> bool:
        """Whether it has measured nothing before this model."""
        return self._measured == 1

    @property
    def is_worn(self) -> bool:
        """Whether another process should measure the next model."""
        return self._must_end or self._measured >= _MODELS_PER_WORKER or self.found_defect

    @property
    def found_defect(self) -> bool:
        """Whether the row looks like a defect, of the model or of what an earlier one has left behind."""
        row = self.row
        bad = row.get("outcome") in ("wrong", "crashed", "hung") or "CUDA error" in row.get("message", "")
        return bad or self._must_end

    @property
    def elapsed_s(self) -> float:
        """How long it has been measuring this model."""
        return time.monotonic() - self._begun

    def receive(self) -> None:
        """Add to the row what the process has sent, or that it ended."""
        try:
            self.row |= self.pipe.recv()
        except (EOFError, ConnectionResetError):
            self._process.join(5)
            self.stop(f"the process ended with {self._process.exitcode}", "crashed")
        if "outcome" in self.row:
            self.row["process_s"] = round(self.elapsed_s, 1)

    def stop(self, why: str, outcome: str) -> None:
        """Note that this model ended the process, or that it has to be ended."""
        self.row |= {"outcome": outcome if "eager_s" in self.row else "eager fails", "message": why}
        self.row["process_s"] = round(self.elapsed_s, 1)
        self._must_end = True

    def end(self) -> None:
        """Kill it and the processes that it started."""
        pid = self._process.pid
        with suppress(ProcessLookupError, PermissionError):
            if pid is not None:
                os.killpg(pid, signal.SIGKILL)
        self._process.kill()
        self._process.join(5)
        self.pipe.close()


def run(
    models: Sequence[tuple[str, str]],
    *,
    jobs: int,
    deadline_s: float,
    optimize: bool,
    stop_after_s: float | None = None,
) -> Iterator[Row]:
    """Measure each model in one of so many processes; yields rows as they come, and ends after `stop_after_s`.

    What looks like a defect is measured again in a new process, which no earlier model can have changed.
    """
    ends_at = time.monotonic() + (float("inf") if stop_after_s is None else stop_after_s)
    waiting = list(models)[::-1]
    again: list[tuple[str, str]] = []
    idle: list[_Worker] = []
    running: dict[Any, _Worker] = {}
    try:
        while (waiting or again or running) and time.monotonic() < ends_at:
            while (waiting or again) and len(running) < jobs:
                while again and idle:  # it needs a new process
                    idle.pop().end()
                worker = idle.pop() if idle else _Worker(optimize=optimize)
                running[worker.pipe] = worker
                worker.begin((again or waiting).pop())
            for worker in _finished(running, deadline_s):
                del running[worker.pipe]
                if worker.found_defect and not worker.is_new:
                    again.append(worker.model)
                else:
                    yield worker.row
                if worker.is_worn:
                    worker.end()
                else:
                    idle.append(worker)
    finally:
        for worker in (*idle, *running.values()):
            worker.end()


def _finished(running: Mapping[Any, _Worker], deadline_s: float) -> list[_Worker]:
    """Wait a moment; returns the workers that have a row, or should have one."""
    ready: list[Any] = wait([*running], timeout=0.5)
    for pipe in ready:
        running[pipe].receive()
    for worker in running.values():
        if "outcome" not in worker.row and worker.elapsed_s > deadline_s:
            worker.stop(f"no result within {deadline_s:g} s", "hung")
    return [worker for worker in running.values() if "outcome" in worker.row]


def installed(libraries: Iterable[str]) -> dict[str, str]:
    """The version of each library; a sentence for one that cannot be imported."""
    found = {}
    for library in libraries:
        try:
            found[library] = importlib.import_module(library.partition(" ")[0]).__version__
        except Exception as error:  # noqa: BLE001 - a library built for another torch raises anything
            found[library] = f"not tried: {_first_line(error)}"
    return found


def _models(versions: dict[str, str], names: Mapping[str, Callable[[], list[str]]]) -> list[tuple[str, str]]:
    """Every model of the libraries. Notes in `versions` why one cannot list its models."""
    models = []
    for library, version in [*versions.items()]:
        try:
            models += [] if version.startswith("not tried") else [(library, name) for name in names[library]()]
        except Exception as error:  # noqa: BLE001 - of a library
            versions[library] = f"not tried: {_first_line(error)}"
    return models


def _import_ahead(versions: Mapping[str, str]) -> None:
    """Import here what every child would import, without initializing CUDA."""
    modules = ["torch._dynamo", "rocsolid.api.capture", "rocsolid.runtime.capture.host_data"]
    if versions.get("transformers", "not tried")[0].isdigit():
        modules += ["transformers.models.llama.modeling_llama", "transformers.models.auto.modeling_auto"]
    for module in modules:
        importlib.import_module(module)


def summary(rows: Iterable[Mapping[str, Any]]) -> str:
    """Tables by library and by refusal, and the share that was captured."""
    rows = list(rows)
    lines = ["| Library | " + " | ".join(OUTCOMES) + " | captured, % |", "|---" * (len(OUTCOMES) + 2) + "|"]
    for library in [*dict.fromkeys(row["library"] for row in rows), "all"]:
        counts = Counter(row["outcome"] for row in rows if library in (row["library"], "all"))
        tried = sum(counts.values()) - counts["eager fails"]
        share = f"{100 * (counts['captured'] + counts['in segments']) / tried:.1f}" if tried else ""
        lines.append(f"| {library} | " + " | ".join(str(counts[name]) for name in OUTCOMES) + f" | {share} |")
    with_cache = [row for row in rows if "without cache: outcome" in row]
    if with_cache:
        captured = sum(row["without cache: outcome"] == "captured" for row in with_cache)
        lines += [
            "",
            f"{len(with_cache)} of the models that are not captured whole have a cache; with `use_cache=False` {captured} are.",
        ]
    reasons = Counter((row["outcome"], row["reason"]) for row in rows if row.get("reason"))
    if reasons:
        lines += ["", "| Reason | in segments | refused |", "|---|---|---|"]
        for reason in sorted({r for _, r in reasons}, key=lambda r: -reasons["refused", r]):
            lines.append(f"| {reason} | {reasons['in segments', reason]} | {reasons['refused', reason]} |")
    optimized = [row for row in rows if "optimize: outcome" in row]
    if optimized:
        columns = [name for name, _ in Counter(row["optimize: outcome"] for row in optimized).most_common()]
        lines += ["", "| `rs.optimize` | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
        for library in dict.fromkeys(row["library"] for row in optimized):
            counts = Counter(row["optimize: outcome"] for row in optimized if row["library"] == library)
            lines.append(f"| {library} | " + " | ".join(str(counts[name]) for name in columns) + " |")
    return "\n".join(lines) + "\n"


def changes(before: Mapping[tuple[str, str], str], rows: Iterable[Mapping[str, Any]]) -> str:
    """A line for each model that is not captured whole, or has another outcome than before."""
    lines = []
    for row in rows:
        outcome, earlier = row["outcome"], before.get((row["library"], row["model"]), "")
        what = outcome if earlier in ("", outcome) else f"{earlier} → {outcome}"
        if what not in _NOT_MISSED:
            lines.append(f"{row['library']} {row['model']}: {what} {row.get('message', '')}"[:200])
    return "\n".join(sorted(lines))


def _outcomes(file: Path) -> dict[tuple[str, str], str]:
    """The outcomes in a file of rows, or of evidence."""
    text = file.read_text(encoding="utf-8")
    rows = json.loads(text)["rows"] if file.suffix == ".json" else map(json.loads, text.splitlines())
    return {(row["library"], row["model"]): row["outcome"] for row in rows}


def page(records: Iterable[Mapping[str, Any]]) -> str:
    """The page of the docs: what became of every model, in each run."""
    intro = (
        "Models of public libraries, shrunken and with random weights, in child processes, through `rs.capture` with the "
        "defaults of its library. Replays with fresh inputs are compared with a separate eager copy of the model. "
        "*In segments* means that the modules that are listed run in eager between graphs, or in another form; for `generate`, that only "
        "the model is captured and the loop of transformers runs. `generate` and pipelines are optimized in place, as `rs.optimize` does. "
        "A model that eager cannot run in this form does not count."
    )
    lines = ["# Models that were captured", "", intro, ""]
    for record in records:
        versions = ", ".join(f"{library} {version}" for library, version in record["libraries"].items())
        lines += [
            f"## {record['device']}",
            "",
            f"Measured on {record['date']} with torch {record['torch']}, {versions}.",
            "",
        ]
        lines += [*record.get("notes", ()), "", "```text", f"$ {record['command']}", "```", "", summary(record["rows"])]
        for library in record["libraries"]:
            lines += [f"### {library} on {record['device']}", ""]
            for outcome in OUTCOMES:
                lines += _listed(
                    outcome, [r for r in record["rows"] if (r["library"], r["outcome"]) == (library, outcome)]
                )
    return "\n".join(lines)


def _listed(outcome: str, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    names = ", ".join(f"`{row['model']}`" for row in rows)
    title = f"{outcome[0].upper()}{outcome[1:]}"
    if rows and outcome in ("captured", "eager fails"):
        return [f"{title} ({len(rows)}): {names}.", ""]
    columns = {"Why": "message", "Modules in eager": "eager_modules"}
    if any("optimize: outcome" in row for row in rows):
        columns["`rs.optimize`"] = "optimize: outcome"
    cells = [[row.get(key, "") for key in columns.values()] for row in rows]
    table = [
        f"| `{row['model']}` | " + " | ".join(_cell(x if isinstance(x, str) else ", ".join(x)) for x in values) + " |"
        for row, values in zip(rows, cells, strict=True)
    ]
    return [f"| {title} | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|", *table, ""] if rows else []


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def main() -> None:
    """Measure what is not in the results yet, then print the tables."""
    from benchmarks.zoo_models import LIBRARIES
    from benchmarks.zoo_programs import PROGRAMS
    from rocsolid.measure.evidence import evidence, write

    names = {
        **{library: of[0] for library, of in LIBRARIES.items()},
        **{library: of[0] for library, of in PROGRAMS.items()},
    }
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", nargs="*", default=[*names], choices=[*names])
    parser.add_argument("--only", nargs="*", default=["*"], help="patterns of model names, as in a shell")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--deadline", type=float, default=120.0, help="seconds for each model")
    parser.add_argument("--stop-after", type=float, help="seconds, after which no more rows are written")
    parser.add_argument(
        "--first", type=Path, help="rows of another run: models that it did not capture are tried first"
    )
    parser.add_argument(
        "--again",
        type=Path,
        help="rows or evidence of another run: only models that it did not capture whole, and libraries that it did not run",
    )
    parser.add_argument("--optimize", action="store_true", help="also through rs.optimize")
    parser.add_argument(
        "--results", type=Path, default=Path("zoo.jsonl"), help="rows; models that are in it are skipped"
    )
    parser.add_argument("--evidence", type=Path, help="write the rows as evidence, for the page")
    args = parser.parse_args()
    versions = installed(args.library)
    known = _models(versions, names)
    print("\n".join(f"{library} {version}" for library, version in versions.items()), flush=True)
    lines = args.results.read_text(encoding="utf-8").splitlines() if args.results.exists() else []
    rows = [json.loads(line) for line in lines]
    done = {(row["library"], row["model"]) for row in rows}
    models = [m for m in known if m not in done and any(fnmatch.fnmatch(m[1], only) for only in args.only)]
    models.sort(key=lambda model: zlib.crc32("/".join(model).encode()))  # so that an interrupted run is a sample
    other = args.again or args.first
    before = _outcomes(other) if other else {}
    missed = {model for model, outcome in before.items() if outcome not in _NOT_MISSED}
    models.sort(key=lambda model: model not in missed)
    if args.again:
        libraries = {library for library, _ in before}
        models = [model for model in models if model in missed or model[0] not in libraries]
    _import_ahead(versions)
    begun = time.monotonic()
    with args.results.open("a", encoding="utf-8") as file:
        found = run(
            models, jobs=args.jobs, deadline_s=args.deadline, optimize=args.optimize, stop_after_s=args.stop_after
        )
        for count, row in enumerate(found, 1):
            rows.append(row)
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
            file.flush()
            left_min = (time.monotonic() - begun) / count * (len(models) - count) / 60
            what = f"{row['outcome']} {row.get('message', '')}"[:110]
            print(
                f"{count}/{len(models)}, {left_min:.0f} min left: {row['library']} {row['model']}: {what}", flush=True
            )
    print(summary(rows))
    print(changes(before, rows))
    if args.evidence:
        command = f"python -m benchmarks.zoo {' '.join(sys.argv[1:])}"
        notes = (
            [f"{len(rows)} of {len(known)} models were run, in the order of a hash of their names."]
            if len(rows) < len(known)
            else []
        )
        fields = {"libraries": versions, "notes": notes, "rows": sorted_rows(rows)}
        write(evidence(what="zoo", command=command, **fields), args.evidence)


def sorted_rows(rows: Iterable[Row]) -> list[Row]:
    """The rows by library and model, without times, which differ from run to run."""
    dropped = ("seconds", "eager_s", "process_s", "optimize: s")
    kept = ({key: value for key, value in row.items() if key not in dropped} for row in rows)
    return sorted(kept, key=lambda row: (row["library"], row["model"]))


if __name__ == "__main__":
    main()
