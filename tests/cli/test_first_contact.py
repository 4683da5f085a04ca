"""What a new user meets first: progress, wrong arguments, exit codes, the cache, results on a terminal of 80 columns."""

import inspect
import json
import re
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.support import ROOT, run_cli, run_python

import rocsolid as rs
from rocsolid.api.tune import _progress_for
from rocsolid.cli.output import note
from rocsolid.errors import UsageError
from rocsolid.model.form import Form
from rocsolid.model.optimize_report import FormOutcome, FormResult, OptimizeReport
from rocsolid.model.progress import Step
from rocsolid.model.study import MEASURED, TrialRecord
from rocsolid.model.timing import SpeedComparison, Timing, Verdict
from rocsolid.report.optimize_page import optimize_html
from rocsolid.report.optimize_text import optimize_text
from rocsolid.report.progress import step_line, steps_for
from rocsolid.report.terminal import Terminal
from rocsolid.tune.effort import TrialUpdate

TORCH_MISSING = "raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')\n"


def test_a_progress_line_says_what_how_far_how_long_and_the_best() -> None:
    step = Step(what="setting up 'compiled'", done=2, total=6, best="'eager', 1.2 ms")
    assert step_line(step, 10.0) == (
        "3 of 6, 10 s, about 20 s left: setting up 'compiled'; best so far: 'eager', 1.2 ms"
    )
    assert step_line(step, 10.0, bar=True).startswith("[#######             ] 3 of 6")
    assert (
        step_line(Step(what="trial 3"), 30.0, budget_s=60, bar=True) == "[##########          ] 30 s of 60 s: trial 3"
    )


def test_the_bar_is_shorter_where_the_line_would_not_fit() -> None:
    step = Step(what="setting up and verifying 'compiled, cpp_wrapper=True'", total=2)
    assert step_line(step, 34.0, bar=True, columns=79).endswith(f" 1 of 2, 34 s: {step.what}")
    assert len(step_line(step, 34.0, bar=True, columns=79)) == 79
    assert step_line(step, 34.0, bar=True, columns=70) == f"1 of 2, 34 s: {step.what}"
    assert len(step_line(step, 34.0, bar=True, columns=119)) == len(f"1 of 2, 34 s: {step.what}") + 23


def test_the_remaining_time_does_not_rise_while_a_step_runs() -> None:
    step = Step(what="trial 3", done=2, total=6)
    left = [step_line(step, 10.0 + s, step_s=s) for s in (0.0, 3.0, 5.0, 60.0)]
    assert [line.split(", ")[2] for line in left] == [f"about {s} s left: trial 3" for s in (20, 17, 15, 15)]
    uneven = Step(what="compiling", done=2, total=6, alike=False)
    assert step_line(uneven, 10.0) == "3 of 6, 10 s: compiling"


def test_every_long_call_takes_the_same_progress_argument() -> None:
    for function in (rs.optimize, rs.tune, rs.ab, rs.dryrun, rs.verify, rs.probe):
        assert inspect.signature(function).parameters["progress"].default is False, function.__name__
    with pytest.raises(UsageError, match="pass True, False, or a function"), _progress_for("yes"):  # type: ignore[arg-type]
        pass


@pytest.mark.torch
def test_verify_and_tune_call_the_function_with_each_step() -> None:
    import torch

    steps: list[Step] = []
    rs.verify(torch.sin, torch.sin, torch.ones(2), progress=steps.append)
    assert [step.done for step in steps] == [0, 1, 2]

    steps.clear()
    timing = Timing(median_ms=1.5, low_ms=1.4, high_ms=1.6, samples=8)
    trial = TrialRecord(number=1, name="baseline", choices={}, kind=MEASURED, timing=timing)
    with _progress_for(steps.append) as callbacks:
        callbacks.on_trial(TrialUpdate(record=trial, finished=[trial], max_trials=2, elapsed_s=1, left_s=1))
        callbacks.on_status("trial 2")
    assert steps == [Step(what="trial 2", best="1.5 ms (baseline)")]


def test_progress_is_quiet_unless_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[Step] = []
    for argument in (False, None, seen.append):
        with steps_for(argument) as on_step:
            on_step(Step(what="x"))
    assert [step.what for step in seen] == ["x"]
    assert capsys.readouterr() == ("", "")
    with pytest.raises(UsageError, match="progress='yes': pass True, False, or a function"), steps_for("yes"):  # type: ignore[arg-type]
        pass


@pytest.mark.torch
def test_optimize_reports_each_form_and_each_round(tmp_path: Path) -> None:
    import torch

    steps: list[Step] = []
    with torch.no_grad():
        rs.optimize(torch.nn.ReLU(), torch.ones(4), budget_s=0, progress=steps.append, artefacts=tmp_path)
    assert [step.what for step in steps if step.total == 3] == ["running eager", "setting up and verifying 'compiled'"]
    measuring = [step for step in steps if step.what.startswith("measuring")]
    assert measuring[-1].best.startswith("'eager', ")


def report_of(*forms: FormResult) -> OptimizeReport:
    return OptimizeReport(
        name="PolicyNetworkWithAnUncommonlyLongName",
        machine="CPU, torch 2.13.0+cpu, Python 3.11.7",
        profile="fast",
        forms=forms,
        chosen=Form.COMPILED,
        why="it is 1.62 times as fast as eager and its results match eager",
        noise=0.012,
    )


def test_the_page_of_forms_says_that_times_of_different_lines_come_from_different_rounds() -> None:
    eager = FormResult(form=Form.EAGER, outcome=FormOutcome.NOT_CHOSEN)
    tried = FormResult(form=Form.COMPILED, outcome=FormOutcome.CHOSEN, settings={"inductor.cpp_wrapper": True})
    note = "the times of different lines come from different rounds"

    assert note in optimize_html(report_of(eager, tried))
    assert note not in optimize_html(report_of(eager))


def test_a_long_label_fits_into_the_plot_of_forms() -> None:
    settings = {"inductor.cpp_wrapper": True, "inductor.max_autotune_gemm": True}
    timing = Timing(median_ms=1.0, low_ms=0.9, high_ms=1.1, samples=15)
    tried = FormResult(form=Form.COMPILED, outcome=FormOutcome.CHOSEN, settings=settings, timing=timing)
    page = optimize_html(report_of(tried))
    labels = re.findall(r"<text[^>]*>([^<]*)</text>", page)
    assert max(map(len, labels)) == 34
    assert "max_autotune_gemm=True" in page


def test_a_long_note_is_wrapped_at_words_on_a_terminal_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (
        "trial 2 of at most 3: form=regional: raised, CannotRunError: the model has no repeated layers; fastest so far"
    )
    monkeypatch.setenv("COLUMNS", "80")
    note(text)
    assert capsys.readouterr().err == f"{text}\n"
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    note(text)
    lines = capsys.readouterr().err.splitlines()
    assert max(map(len, lines)) <= 80
    assert " ".join(line.strip() for line in lines) == text


def test_the_details_of_a_form_with_a_long_name_are_not_squeezed_into_a_narrow_column() -> None:
    settings = {"inductor.cpp_wrapper": True, "inductor.max_autotune_gemm": True}
    why = "set-up would take about 79 s and 40 s are left; budget_s= allows more"
    skipped = FormResult(form=Form.COMPILED, outcome=FormOutcome.SKIPPED, settings=settings, why=why)
    lines = optimize_text(report_of(skipped), Terminal(width=80)).splitlines()
    assert f"    {why}" in lines  # one line, and no set-up time of a form that was not set up


def test_the_result_fits_80_columns_has_colour_and_ends_with_the_next_step() -> None:
    timing = Timing(median_ms=1.234, low_ms=1.2, high_ms=1.3, samples=15, clock="host")
    gain = SpeedComparison(speedup=1.62, low=1.5, high=1.7, verdict=Verdict.FASTER, noise=0.01)
    report = report_of(
        FormResult(form=Form.EAGER, outcome=FormOutcome.NOT_CHOSEN, timing=timing, relative_error=0.0),
        FormResult(form=Form.COMPILED, outcome=FormOutcome.CHOSEN, timing=timing, against_eager=gain, setup_s=12.0),
        FormResult(form=Form.COMPILED_GRAPH, outcome=FormOutcome.FAILED, why="a long reason " * 12),
    )
    text = optimize_text(report, Terminal(width=80), workload="work.py:build")
    assert max(map(len, text.splitlines())) <= 80
    assert text.splitlines()[-1].startswith("next: rocsolid tune work.py:build")
    assert "rs.optimize(model, example_inputs)" in text
    assert "\033[32;1m* compiled" in optimize_text(report, Terminal(width=80, colour=True))


MODEL = "the model"  # replaced by a module
WORKLOAD = "a workload is a name such as 'work.py:build', not an object of type Linear"


def call(function: Any, args: list[Any], options: dict[str, Any]) -> None:
    """Call the function; `rs.pretend` checks its argument when its block begins."""
    function(*args, **options).__enter__()


@pytest.mark.torch
@pytest.mark.parametrize(
    ("function", "args", "options", "message"),
    [
        ("tune", [MODEL], {}, WORKLOAD),
        ("ab", [MODEL, "safe", "fast"], {}, WORKLOAD),
        ("dryrun", [MODEL], {}, WORKLOAD),
        ("apply", ["saef"], {}, "unknown profile 'saef'; did you mean 'safe'"),
        ("apply", [3], {}, "rs.apply: plan must be a plan, or the path of a plan file; got 3"),
        ("optimize", [MODEL, ()], {"verify": "sometimes"}, "sometimes"),
        ("optimize", [MODEL, ()], {"budget_s": "x"}, "rs.optimize: budget_s must be a number of at least 0; got 'x'"),
        ("compile", [3], {}, "rs.compile needs a function or a module; got int"),
        ("compile", [MODEL], {"deadline_s": "x"}, "rs.compile: deadline_s must be a number"),
        ("compile", [MODEL], {"max_recompiles": -1}, "max_recompiles must be a number of at least 0; got -1"),
        ("capture", [3], {}, "rs.capture needs a callable or a module; got int"),
        ("guard", [3], {}, "profile must be the name of a profile, such as 'safe'; got 3"),
        ("resolve", [MODEL], {}, "profile must be the name of a profile"),
        ("check", [3], {}, "rs.check: env must be a snapshot from rs.probe(); got 3"),
        ("explain", [3], {}, "rs.explain: name must be a name"),
        ("lint", [3], {}, "rs.lint: each path must be a file or a folder; got 3"),
        ("trace", [3], {}, "rs.trace: each file must be the path of a trace; got 3"),
        ("compare", [1, 2], {}, "rs.compare: each file must be the path"),
        ("breaks", [3], {}, "rs.breaks needs a function or a module"),
        ("every", ["x"], {}, "rs.every: calls must be a whole number; got 'x'"),
        ("pretend", [3], {}, "rs.pretend: chip must be a chip"),
    ],
)
def test_a_wrong_argument_gets_a_sentence(
    function: str, args: list[Any], options: dict[str, Any], message: str
) -> None:
    import torch

    given = [torch.nn.Linear(1, 1) if value is MODEL else value for value in args]
    with pytest.raises(UsageError, match=re.escape(message)):
        call(getattr(rs, function), given, options)


def test_a_profile_can_be_applied_by_its_name() -> None:
    with rs.apply("safe") as applied:
        assert applied.plan.profile == "safe"


def test_a_missing_file_is_reported_before_torch_is_imported() -> None:
    for command in ("optimize", "breaks", "compiles", "profile"):
        ran = run_python("-X", "importtime", "-m", "rocsolid", command, "nowhere.py:build")
        assert ran.code == 2, command
        assert "the workload file nowhere.py does not exist" in ran.err
        assert not re.search(r"\| +torch$", ran.err, re.MULTILINE), command


@pytest.mark.torch
def test_without_torch_every_command_exits_with_3(tmp_path: Path) -> None:
    file = tmp_path / "work.py"
    file.write_text(TORCH_MISSING)
    for command in ("optimize", "breaks", "compiles", "profile"):
        ran = run_cli(command, f"{file}:build")
        assert (ran.code, "needs torch, which is not installed" in ran.err) == (3, True), (command, ran.err)


def test_in_an_environment_without_packages_every_command_that_needs_torch_exits_with_3(tmp_path: Path) -> None:
    file = tmp_path / "work.py"
    file.write_text("import torch\ndef build():\n    return torch.sin, (torch.ones(2),), {}\n")
    sides = {"ab": ("--a", "safe", "--b", "fast")}
    for command in ("optimize", "tune", "ab", "verify", "dryrun", "breaks", "compiles"):
        words = (command, f"{file}:build", *sides.get(command, ()))
        ran = run_python("-S", "-m", "rocsolid", *words, env={"PYTHONPATH": str(ROOT / "src")})
        assert (ran.code, "torch, which is not installed" in ran.err) == (3, True), (command, ran.err)


def test_fail_on_has_the_same_choices_everywhere() -> None:
    for command in ("probe", "lint", "dryrun", "breaks", "compiles", "trace", "profile"):
        ran = run_cli(command, "x.py:f", "--fail-on", "break")
        assert ran.code == 2, command
        assert "invalid choice: 'break' (choose from " in ran.err


def test_the_cache_is_shown_and_cleared(tmp_path: Path) -> None:
    saved = tmp_path / "rocsolid" / "artefacts" / "a.bin"
    kept = tmp_path / "rocsolid" / "dryrun" / "k.bin"
    for file in (saved, kept):
        file.parent.mkdir(parents=True)
        file.write_bytes(b"x" * 1500)
    env = {"XDG_CACHE_HOME": str(tmp_path)}
    shown = run_cli("cache", env=env)
    assert shown.code == 0
    assert "1.50 kB" in shown.out
    assert str(saved.parent) in shown.out
    assert "rocsolid cache --clear" in shown.out
    run_cli("cache", "--clear", "artefacts", env=env)
    assert (saved.exists(), kept.exists()) == (False, True)
    folders = json.loads(run_cli("cache", "--clear", "--output", "json", env=env).out)["folders"]
    assert not kept.exists()
    assert [folder["files"] for folder in folders[:4]] == [0, 0, 0, 0]


@pytest.mark.torch
def test_a_cpu_profile_shows_operators(tmp_path: Path) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("only without a GPU")
    work = tmp_path / "work.py"
    work.write_text("import torch\ndef build():\n    return torch.nn.Linear(8, 8), (torch.ones(2, 8),), {}\n")
    ran = run_cli("profile", f"{work}:build", "--trace", str(tmp_path / "t.json.gz"))
    assert ran.code == 0, ran.err
    assert "no GPU work in this trace: this is the time by operator on the CPU" in ran.out
    assert "aten::addmm" in ran.out


def test_a_long_call_prints_plain_lines_where_there_is_no_terminal() -> None:
    program = (
        "import time; from rocsolid.report import progress as p; assert p._FIRST_LINE_S <= 2 <= p._LOG_INTERVAL_S\n"
        "p._FIRST_LINE_S = 0.3\n"
        "from rocsolid.model.progress import Step\n"
        "with p.show_steps() as step:\n"
        "    step(Step(what='compiling', done=2, total=4)); time.sleep(1.5)\n"
    )
    started = time.monotonic()
    ran = run_python("-c", program)
    assert time.monotonic() - started < 60
    assert ran.code == 0
    assert re.fullmatch(r"3 of 4, \d s, about \d s left: compiling\n", ran.err)  # the next line comes after 10 s
    assert "\r" not in ran.err
    assert sys.executable


def test_help_fits_80_columns() -> None:
    from rocsolid.cli.app import COMMANDS

    for words in ((), *((command,) for command in COMMANDS)):
        ran = run_cli(*words, "--help", env={"COLUMNS": "80"})
        assert ran.code == 0
        too_wide = [line for line in ran.out.splitlines() if len(line) > 80 and len(line.split()) > 1]
        assert not [line for line in too_wide if not line.lstrip().startswith("rocsolid ")], words


def test_explain_takes_the_end_of_a_name_where_it_is_unambiguous() -> None:
    assert run_cli("explain", "max_autotune").out == run_cli("explain", "inductor.max_autotune").out
    assert run_cli("explain", "autotune").code == 2


@pytest.mark.torch
def test_the_demo_makes_a_model_faster_fixes_a_hazard_and_says_what_is_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """With a smaller model and budget, and in few processes."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import demo
    from rocsolid.cli import main

    (tmp_path / "small.py").write_text(
        "import torch\ndef build():\n    return torch.nn.Linear(4, 4).eval(), (torch.ones(1, 4),), {}\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo, "MODEL", "small.py:build")

    in_child = demo._rocsolid

    def run_here(*words: str) -> None:
        if words[0] == "breaks":  # a process imports a file only once
            in_child(*words)
            return
        assert main(["0s" if word == "90s" else word for word in words]) == 0, words

    monkeypatch.setattr(demo, "_rocsolid", run_here)
    demo.main()

    printed = capfd.readouterr().out
    assert printed.index("1 graph break") < printed.index("after the fix, `") < printed.rindex("no graph break,")
    assert "next, with your own model" in printed
    assert {file.name for file in Path("rocsolid-report").iterdir()} >= {"optimize.html", "profile.html", "probe.html"}
