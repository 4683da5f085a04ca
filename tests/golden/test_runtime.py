"""Messages of the runtime: guard, plans, deadlines, recompiles, optimize, run and pretend, compared with golden files."""

import linecache
import logging
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.support import ROOT, check_golden, clean_environ, has_gpu, make_env, run_cli, run_python, until

import rocsolid as rs
from rocsolid.errors import CannotRunError, RocsolidError, UsageError
from rocsolid.model.environment import CheckResult, CheckStatus
from rocsolid.model.form import Form
from rocsolid.model.optimize_report import FormOutcome, FormResult, OptimizeReport
from rocsolid.model.plan import Decision, Plan, Tuned
from rocsolid.model.platform import Platform
from rocsolid.model.setting import Channel
from rocsolid.model.timing import SpeedComparison, Timing, Verdict

pytest.importorskip("torch")
import torch

from rocsolid.api import safety
from rocsolid.model.release import span
from rocsolid.optimize.example_inputs import Example, to_examples
from rocsolid.optimize.race import RacedForm, expect, prepare
from rocsolid.probe.pretended import require_no_gpu
from rocsolid.report.shell_variables import variables_text
from rocsolid.runtime.applied_plan import Applied
from rocsolid.runtime.compiled import compile_with_plan
from rocsolid.runtime.guard import Guard
from rocsolid.runtime.launch.protect import Protection, set_variables
from rocsolid.torchapi.private_api import AttributePatch, PrivateName

pytestmark = pytest.mark.torch
PROGRAM = """\
import torch
import torch._inductor.config as config


def scale(x, factor=1.0):
    y = x * factor
    return y


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.step = 1

    def forward(self, x):
        return x * self.step


def request_unsafe_values():
    config.max_autotune = True
    with config.patch({"max_autotune": True}):
        pass
    torch.compile(scale, mode="reduce-overhead")
    torch.compile(scale, options={"max_autotune": True})


def call(function, *args):
    return function(*args)


def call_with_new_size(scale):
    return scale(torch.ones(5, 4))


def call_with_new_factor(scale):
    return scale(torch.ones(2, 4), factor=2.0)


def call_with_new_dtype(scale):
    return scale(torch.ones(2, 4).double())


def serve(net):
    return net(torch.ones(2))


def slow_backend(graph, inputs):
    import time

    while True:
        time.sleep(0.01)
"""


def decision(setting: str, value: Any, why: str, channel: Channel = Channel.OPTION, *, guard: bool = True) -> Decision:
    return Decision(id=setting, value=value, channel=channel, why=why, profile="safe", guard=guard)


PLAN = Plan(
    profile="safe",
    platform=Platform.ROCM,
    torch="2.13.0",
    decisions=(
        decision("inductor.max_autotune", False, "Autotuning has no deadline."),
        decision("inductor.triton.cudagraphs", False, "HIP graphs of compiled regions can return wrong results."),
        decision("inductor.combo_kernels", False, "Combo kernels are experimental.", guard=False),
        decision("inductor.max_fusion_size", 32, "Smaller kernels compile faster.", guard=False),
        decision("compile.dynamic", False, "The shapes are fixed.", Channel.ARGUMENT, guard=False),
        decision("process.TRITON_INTERPRET", None, "With TRITON_INTERPRET, kernels run in Python.", Channel.PROCESS),
        decision(
            "process.HIP_LAUNCH_BLOCKING",
            "1",
            "With 1, an error is reported by the launch that caused it.",
            Channel.PROCESS,
        ),
    ),
)
TUNED = Tuned(
    workload="work.py:build",
    form="compiled",
    graph=True,
    speedup=1.2,
    low=1.1,
    high=1.3,
    verdict="faster",
    noise=0.01,
    checked="same",
    device="AMD Instinct MI300X",
    arch="gfx942",
    python="3.11",
    date="2026-11-15",
)


def eager(graph: Any, _inputs: Any) -> Any:
    return graph.forward


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A user's program `program.py` in the current folder, with fixed line numbers."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "program.py").write_text(PROGRAM)
    linecache.checkcache("program.py")
    module = ModuleType("program")
    exec(compile(PROGRAM, "program.py", "exec"), vars(module))  # noqa: S102 - the text above
    return module


@pytest.fixture
def check(tmp_path: Path) -> Callable[..., None]:
    """Compare with a golden file; the folder of the test is left out of paths."""

    def compare(name: str, text: str, **patterns: str) -> None:
        replaced = {rf"{tmp_path}/": "", str(tmp_path): "<folder>", **patterns}
        check_golden(f"runtime/{name}", text, replace=replaced)

    return compare


def error_of(function: Callable[..., object], *args: Any, **kwargs: Any) -> str:
    with pytest.raises(RocsolidError) as error:
        function(*args, **kwargs)
    return f"{type(error.value).__name__}: {error.value}"


def test_guard_logs_each_refused_value(
    program: Any, check: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    import torch._inductor.cudagraph_trees as trees

    with caplog.at_level(logging.WARNING, "rocsolid"), Guard(PLAN):
        program.request_unsafe_values()
        program.call(trees.cudagraphify_impl, "the model", [], ())
    check("guard_interventions", "\n".join(caplog.messages))


def test_plan_and_applied_plan_print_each_value(check: Callable[..., None]) -> None:

    applied = Applied(plan=PLAN)
    before = str(applied)
    with applied:
        text = str(applied)
    check("plan", f"{PLAN}\n\n{text}\n\nbefore it is applied:\n{before.splitlines()[1]}")


def test_plan_errors_name_the_file_or_the_platform(
    check: Callable[..., None], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "broken.toml").write_text("x = [")
    (tmp_path / "other.toml").write_text("x = 1")
    rocm = make_env(Platform.ROCM)
    texts = [
        error_of(Plan.load, tmp_path / "missing.toml"),
        error_of(Plan.load, tmp_path / "broken.toml"),
        error_of(Plan.load, tmp_path / "other.toml"),
        error_of(safety.check_plan_fits, PLAN, make_env(Platform.CUDA)),
    ]
    safety.check_plan_fits(replace(PLAN, tuned=replace(TUNED, device="AMD Radeon RX 9070 XT", arch="gfx1201")), rocm)
    safety.check_plan_fits(replace(PLAN, torch="2.9.0", tuned=TUNED), rocm)
    patterns = {r"is not valid TOML: .*": "is not valid TOML: <reason>"}
    check("plan_errors", "\n".join([*texts, *(f"WARNING: {m}" for m in caplog.messages)]), **patterns)


def test_recompile_error_names_guard_argument_and_line(program: Any, check: Callable[..., None]) -> None:
    if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 13):
        pytest.skip("older torch does not report the line of a guard")
    texts = []
    calls = (program.call_with_new_size, program.call_with_new_factor, program.call_with_new_dtype)
    for number, call in enumerate(calls):
        torch._dynamo.reset()
        scale = compile_with_plan(PLAN, program.scale, backend=eager, max_recompiles=1, dynamic=False)
        scale(torch.ones(2, 3))
        scale(torch.ones(2, 4))
        texts.append(f"{number}. " + error_of(call, scale))
    model = program.Net()
    sealed = compile_with_plan(PLAN, model, backend=eager)
    sealed(torch.ones(2))
    sealed.rocsolid.seal()
    model.step = 2
    texts.append("3. " + error_of(program.serve, sealed))
    model.step = 1
    with torch.no_grad():
        texts.append("4. " + error_of(program.serve, sealed))
    check("recompile_error", "\n\n".join(texts))


DEADLINE = """
import logging, sys
logging.basicConfig(level=logging.WARNING, stream=sys.stdout, format="%(message)s")
import torch, rocsolid as rs
from rocsolid.errors import RocsolidError
import program
torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))  # imports the compiler
given = {"backend": program.slow_backend, "deadline_s": 2.0}
rs.compile(program.scale, **given)(torch.ones(2))
torch._dynamo.reset()
try:
    rs.compile(program.scale, fullgraph=True, **given)(torch.ones(2))
except RocsolidError as error:
    print(f"{type(error).__name__}: {error}")
"""


@pytest.mark.usefixtures("program")
def test_deadline_messages_name_phase_and_fix(check: Callable[..., None]) -> None:
    """In a process of its own: in one with millions of objects, a garbage collection takes longer than such a deadline."""
    ran = run_python("-c", DEADLINE, env=clean_environ(PYTHONPATH=f"{Path.cwd()}:{ROOT / 'src'}"))
    stacks = re.compile(r"  stack of the compile, innermost call last:\n(    .*\n)+")
    check("deadline", stacks.sub("\n", ran.out), **{r"running for \d+ s": "running for <n> s"})


def test_trial_in_a_child_process_reports_how_it_ended(
    check: Callable[..., None], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    texts = []
    for ending, detail in (
        (CheckStatus.HUNG, "ended after 900 s"),
        (CheckStatus.CRASHED, "signal 11"),
        (CheckStatus.FAILED, "RuntimeError: no kernel"),
        (CheckStatus.SKIPPED, "the function cannot be sent to a child process: it is a lambda"),
    ):
        result = CheckResult(name="in a child process", status=ending, seconds=900.0, detail=detail)
        monkeypatch.setattr(safety, "_run_in_child", lambda *_, result=result: result)
        trial = safety._trial(900.0)
        texts.append(trial(len, {}, (), {}) or f"WARNING: {caplog.messages[-1]}")
    check("trial_in_child", "\n".join(texts))


def test_optimize_report_and_reasons(check: Callable[..., None], caplog: pytest.LogCaptureFixture) -> None:
    def fails() -> Any:
        msg = "no kernel for this\nand more lines"
        raise RuntimeError(msg)

    x = torch.ones(4)
    examples, expected = [Example((x,), {})], expect(lambda x: x * 2, [Example((x,), {})])
    makers: dict[Form, tuple[Callable[[], Any], float]] = {
        Form.EAGER: (lambda: lambda x: x * 2, float("inf")),
        Form.REGIONAL: (lambda: lambda x: x * 2.2, float("inf")),
        Form.COMPILED: (lambda: lambda x: x + x, float("inf")),
        Form.EAGER_GRAPH: (lambda: lambda x: x + x, float("inf")),
        Form.REGIONAL_GRAPH: (fails, float("inf")),
        Form.COMPILED_GRAPH: (lambda: len, time.perf_counter() - 1),
    }
    results = {}
    for form, (make, deadline) in makers.items():
        raced = RacedForm(form=form, make=make)
        prepare(raced, examples, expected, deadline)
        results[form] = replace(raced.result, setup_s=1.5)
    for number, form in enumerate((Form.EAGER, Form.COMPILED, Form.EAGER_GRAPH)):
        ms = 0.9 / (number + 1)
        timing = Timing(median_ms=ms, low_ms=ms * 0.99, high_ms=ms * 1.01, samples=15)
        against = SpeedComparison(speedup=number + 1.0, low=0.9, high=3.1, verdict=Verdict.FASTER) if number else None
        results[form] = replace(results[form], timing=timing, against_eager=against)
    results[Form.EAGER_GRAPH] = replace(results[Form.EAGER_GRAPH], outcome=FormOutcome.CHOSEN)
    report = OptimizeReport(
        name="Net",
        machine="NVIDIA H200, torch 2.13.0, Python 3.11.7",
        profile="fast",
        forms=tuple(results.values()),
        chosen=Form.EAGER_GRAPH,
        why="it is 3.00 times as fast as eager and its results match eager",
        noise=0.004,
        longest_call_ms=12.5,
    )
    assert isinstance(results[Form.EAGER], FormResult)
    check("optimize_report", "\n".join([str(report), "", *(f"WARNING: {m}" for m in caplog.messages)]))


def test_optimize_usage_errors(check: Callable[..., None]) -> None:
    wrong: tuple[Any, ...] = ([], "x", 3)
    texts = [error_of(to_examples, given) for given in wrong]
    check("optimize_errors", "\n".join([*texts, error_of(rs.optimize, 3, torch.ones(1))]))


def test_run_summary_lists_variables_and_refused_values(
    program: Any, check: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    environ = {"TORCHINDUCTOR_MAX_AUTOTUNE": "1", "TRITON_INTERPRET": "1", "HIP_LAUNCH_BLOCKING": "0"}
    variables = tuple(set_variables(PLAN, environ))
    with Guard(PLAN, quiet=True) as guard:
        program.request_unsafe_values()
    Protection(plan=PLAN, guard=guard, variables=variables, pretended="gfx942@7.2.4").report_changes()
    check("run_summary", capsys.readouterr().err)


def test_run_warns_about_unprotected_processes(check: Callable[..., None]) -> None:
    code = (
        "import os, subprocess, sys\n"
        "subprocess.run([sys.executable, '-I', '-c', 'pass'])\n"
        "subprocess.run([sys.executable, '-c', 'pass'], env={})\n"
        "os.environ['ROCSOLID_RUN_PLAN'] = '/missing/plan.toml'\n"
        "try:\n    import triton\nexcept ImportError:\n    pass\n"  # the import that starts the protection
    )
    check("run_unprotected", run_cli("run", "-c", code).err, **{r"\S+/python[\d.]* ": "python "})


def test_run_usage_errors(check: Callable[..., None]) -> None:
    from rocsolid.cli.run import launch_from

    cases: tuple[list[str], ...] = (
        [],
        ["-m"],
        ["--profile"],
        ["--nonsense", "x.py"],
        ["-x"],
        ["--deadline", "soon", "x.py"],
        ["--profile", "saef", "x.py"],
        ["--plan", "/missing/plan.toml", "x.py"],
        ["--pretend", "gfx94", "x.py"],
        ["--pretend", "gfx942@new", "x.py"],
    )
    check("run_errors", "\n".join(f"rocsolid run {' '.join(c)}\n  {error_of(launch_from, c)}" for c in cases))


def test_env_text_for_every_shell(check: Callable[..., None]) -> None:
    check("env", "\n".join(variables_text(PLAN, shell) for shell in ("bash", "fish", "docker")))


@pytest.mark.skipif(has_gpu(), reason="rs.pretend needs a machine without a GPU")
def test_pretended_chip_messages(check: Callable[..., None], caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:

    texts = []
    with caplog.at_level(logging.INFO, "rocsolid"), rs.pretend("gfx942@7.2.1"):
        with pytest.raises(UsageError) as error, rs.pretend("gfx950"):
            pass
        texts.append(f"UsageError: {error.value}")
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/kfd").touch()
    with pytest.raises(CannotRunError) as refused:
        require_no_gpu(tmp_path)
    texts.append(f"CannotRunError: {refused.value}")
    logged = [m for m in caplog.messages if "gfx950" not in m]
    patterns = {r"torch\._inductor\.config( and torch\._inductor\.runtime\.hints)?;": "<modules>;"}
    check("pretend", "\n".join([*dict.fromkeys(logged), *texts]), **patterns)


def test_private_api_messages(check: Callable[..., None], caplog: pytest.LogCaptureFixture) -> None:
    missing = PrivateName(
        module="torch.utils._config_module",
        name="ConfigModule.no_such_method",
        releases=span("2.6..2.8"),
        without="rs.guard: refused values are not reported",
    )
    text = error_of(missing.get)

    class Owner:
        value = 1

    patch = AttributePatch(Owner, "value", lambda _: 2)
    Owner.value = 3
    patch.undo()
    check("private_api", f"{text}\nWARNING: {caplog.messages[-1]}", **{r"torch 2\.\d+\.\d+\S*": "torch <version>"})


def test_background_failure_of_progressive_optimization(
    check: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    from rocsolid.optimize.progressive import Progressive

    def model(x: Any) -> Any:
        return x * 2

    def trial() -> str:
        msg = "the disk is full"
        raise OSError(msg)

    examples = [Example((torch.ones(4),), {})]
    fast = Progressive(model, examples, profile="fast", compiled=lambda: model, capture=None, trial=trial)
    until(lambda: fast.wait(0))
    text = f"{caplog.messages[0]}\n\n{fast.report()}"
    patterns = {r"CPU, torch \S+, Python \S+,": "<machine>,", r"compilation: [\d.]+ ms": "compilation: <n> ms"}
    check("progressive_failure", text, **patterns)
