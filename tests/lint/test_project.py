"""Linting a project: allow comments, options, baseline, cache, and several processes."""

import os
from pathlib import Path

import pytest

from rocsolid.catalog.registry import all_settings
from rocsolid.errors import InputError, UnknownNameError
from rocsolid.lint import baseline, fact_cache, worker_pool
from rocsolid.lint import project as project_module
from rocsolid.lint.check_file import check_text
from rocsolid.lint.facts import FileFacts
from rocsolid.lint.files import SourceFile
from rocsolid.lint.options import Options, find_pyproject, read_options
from rocsolid.lint.project import lint
from rocsolid.model.lint import LintRecord
from rocsolid.rules.engine import RuleFile, rule
from rocsolid.rules.source.compile import dead_setting

DEAD = "torch._inductor.config.group_fusion = True"


def run(folder: Path, jobs: int = 1, cache: Path | None = None, **options: object) -> LintRecord:
    return lint([folder], read_options(None, **options), jobs=jobs, cache=cache)


def names(record: LintRecord) -> list[str]:
    return [f.name for f in record.findings]


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (f"{DEAD}  # rocsolid: allow[dead-setting] our fork reads it", []),
        (f"{DEAD}  # rocsolid: allow[SRC107] our fork reads it", []),
        (f"# rocsolid: allow[dead-setting, mode-hard-coded] a reason\n{DEAD}", []),
        (f"# rocsolid: allow[dead-setting] a reason\n\n# and more words\n{DEAD}", []),
        (f"x = 1\n# rocsolid: allow-file[dead-setting] a reason\n{DEAD}\n{DEAD}", []),
        (f"{DEAD}  # rocsolid: allow[dead-setting]", ["dead-setting", "allow-without-reason"]),
        (f"{DEAD}  # rocsolid: allow[mode-hard-coded] wrong name", ["dead-setting", "unused-allow"]),
        (f"{DEAD}  # rocsolid: allow[dead-setting] once\n{DEAD}", ["dead-setting"]),
        (f"{DEAD}  # noqa", ["dead-setting"]),
        (f'"""# rocsolid: allow[dead-setting] in a text"""\n{DEAD}', ["dead-setting"]),
    ],
)
def test_an_allow_comment_needs_a_reason(tmp_path: Path, text: str, left: list[str]) -> None:
    (tmp_path / "m.py").write_text(f"import torch\n{text}\n")
    record = run(tmp_path)

    assert sorted(names(record)) == sorted(left)


def test_allowed_findings_are_counted(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(f"import torch\n{DEAD}  # rocsolid: allow[dead-setting] a reason\n")

    assert run(tmp_path).allowed == 1


def test_select_and_ignore_take_codes_prefixes_and_names(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(f"import torch\n{DEAD}\nWARP_SIZE = 32\n")

    assert names(run(tmp_path, select=("SRC1",))) == ["dead-setting"]
    assert names(run(tmp_path, select=("warp-size-hard-coded",))) == ["warp-size-hard-coded"]
    assert names(run(tmp_path, ignore=("SRC405",))) == ["dead-setting"]
    assert names(run(tmp_path, per_file_ignores={"m.py": ("SRC",)})) == []
    with pytest.raises(UnknownNameError, match="unknown rule 'dead-settings'; did you mean 'dead-setting'"):
        run(tmp_path, ignore=("dead-settings",))
    with pytest.raises(UnknownNameError, match="unknown confidence 'sure'"):
        Options(confidence="sure")


def test_options_are_read_from_pyproject(tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pyproject.toml").write_text(
        '[tool.rocsolid.lint]\nignore = ["SRC405"]\nconfidence = "anywhere"\nfail-on = "critical"\n'
        '[tool.rocsolid.lint.per-file-ignores]\n"tests/*" = ["SRC1"]\n'
    )
    file = find_pyproject(tmp_path / "pkg")
    options = read_options(file, confidence=None, ignore=None)

    assert file == tmp_path / "pyproject.toml"
    assert (options.ignore, options.confidence, options.fail_on) == (("SRC405",), "anywhere", "critical")
    assert not options.includes(dead_setting.RULE, "tests/m.py")
    assert options.includes(dead_setting.RULE, "pkg/m.py")
    assert read_options(file, ignore=("SRC1",)).ignore == ("SRC1",)
    (tmp_path / "pyproject.toml").write_text('[tool.rocsolid.lint]\nbaseline = "known.json"\n')
    assert read_options(file).baseline == str(tmp_path / "known.json")


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("ignroe = []", "unknown key 'ignroe'; did you mean 'ignore'"),
        ("select = 3", "select in .* is 3; expected a list"),
        ("confidence = []", "expected text"),
        ("all-files = 1", "expected true or false"),
        ("per-file-ignores = 1", "expected a table"),
        ('fail-on = "errors"', "unknown severity for fail-on 'errors'"),
    ],
)
def test_a_wrong_option_is_an_error(tmp_path: Path, table: str, message: str) -> None:
    (tmp_path / "pyproject.toml").write_text(f"[tool.rocsolid.lint]\n{table}\n")

    with pytest.raises((InputError, UnknownNameError), match=message):
        read_options(tmp_path / "pyproject.toml")


def test_a_broken_pyproject_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool")

    with pytest.raises(InputError, match=r"pyproject\.toml is not valid TOML"):
        read_options(tmp_path / "pyproject.toml")


def test_a_baseline_covers_known_findings_and_no_new_ones(tmp_path: Path) -> None:
    module, known = tmp_path / "m.py", tmp_path / "known.json"
    module.write_text(f"import torch\n{DEAD}\n")
    known.write_text(baseline.baseline_text(run(tmp_path).findings))
    module.write_text(f"import torch\n\n\n# moved down\n{DEAD}\n")
    moved = run(tmp_path, baseline=str(known))
    module.write_text(f"import torch\n{DEAD}\n{DEAD}\n")
    more = run(tmp_path, baseline=str(known))

    assert (names(moved), moved.in_baseline) == ([], 1)
    assert (names(more), more.in_baseline) == (["dead-setting"], 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "create one with --write-baseline FILE"),
        ("[]", "was not written by rocsolid"),
        ('{"schema": "rocsolid/probe/1"}', "its schema is rocsolid/probe/1, expected"),
        ('{"schema": "rocsolid/lint-baseline/1", "findings": [1]}', "is not a valid baseline"),
    ],
)
def test_a_broken_baseline_is_refused(tmp_path: Path, text: str | None, message: str) -> None:
    if text is not None:
        (tmp_path / "b.json").write_text(text)

    with pytest.raises(InputError, match=message):
        baseline.read_baseline(tmp_path / "b.json")


def test_unchanged_files_come_from_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project, db = tmp_path / "p", tmp_path / "cache/lint.db"
    project.mkdir()
    (project / "m.py").write_text(
        f"import torch\n{DEAD}\n@torch.compile\ndef f(x): return g(x)\ndef g(x): return x.item()\n"
    )
    first = run(project, cache=db)
    read: list[str] = []

    def watched(data: bytes, *, file: str, module: str, package: bool) -> FileFacts:
        read.append(file)
        return check_text(data, file=file, module=module, package=package)

    monkeypatch.setattr(worker_pool, "check_text", watched)
    second = run(project, cache=db)
    (project / "n.py").write_text(f"import torch\n{DEAD}\n")
    third = run(project, cache=db)

    assert second == first
    assert [Path(name).name for name in read] == ["n.py"]
    assert len(third.findings) == len(first.findings) + 1


def test_caches_of_old_projects_are_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fact_cache, "_MAX_PROJECTS", 2)
    (tmp_path / "m.py").write_text("x = 1\n")
    for number in range(3):
        db = tmp_path / f"cache/{number}.db"
        run(tmp_path, cache=db)
        os.utime(db, (number, number))
    assert sorted(file.name for file in (tmp_path / "cache").iterdir()) == ["1.db", "2.db"]


@pytest.mark.parametrize("content", [b"", b"no database", b"SQLite format 3\0" + b"x" * 200])
def test_a_corrupt_cache_is_recreated(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "m.py").write_text(f"import torch\n{DEAD}\n")
    (tmp_path / "lint.db").write_bytes(content)

    assert names(run(tmp_path, cache=tmp_path / "lint.db")) == ["dead-setting"]
    assert names(run(tmp_path, cache=tmp_path / "lint.db")) == ["dead-setting"]


def test_a_cache_that_cannot_be_written_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(f"import torch\n{DEAD}\n")
    (tmp_path / "file").write_text("")

    assert names(run(tmp_path, cache=tmp_path / "file/lint.db")) == ["dead-setting"]


def test_the_cache_key_changes_with_the_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    before = fact_cache.cache_key(b"x", "m")
    monkeypatch.setattr(fact_cache, "_rules_digest", lambda: b"other")

    assert fact_cache.cache_key(b"x", "m") != before


def test_several_processes_give_the_same_result_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_pool, "_MIN_BYTES_FOR_WORKERS", 0)
    (tmp_path / "deep.py").write_text("def g(x): return x.item()\n")
    for number in range(12):
        text = f"import torch\nfrom deep import g\n{DEAD}\n@torch.compile\ndef f(x): return g(x)\n"
        (tmp_path / f"m{number}.py").write_text(text)
    one, three = run(tmp_path), run(tmp_path, jobs=3)

    assert one == three
    assert len(one.findings) == 13


def test_what_a_worker_found_is_read_from_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project, db = tmp_path / "project", tmp_path / "lint.db"
    project.mkdir()
    for number in range(5):
        (project / f"m{number}.py").write_text(f"import torch\n{DEAD}\n# {number}\n")
    monkeypatch.setattr(worker_pool, "_MIN_BYTES_FOR_WORKERS", 0)
    first = run(project, jobs=2, cache=db)
    monkeypatch.setattr(project_module, "check_files", lambda files, _jobs: iter(files))  # any file would be an error

    assert run(project, jobs=2, cache=db) == first


def test_one_worker_gets_the_portions_of_another_that_is_slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the files must not wait for a worker that is busy with one of them."""
    files = []
    for number in range(9):
        path = tmp_path / f"m{number}.py"
        path.write_text("x = 1\n")
        files.append(SourceFile(path=path, display_path=path.name, module=path.stem, package=False))
    hook = "import os, pathlib, time\nread = pathlib.Path.read_bytes\n"
    hook += "def read_bytes(self):\n    while self.name == 'm0.py' and not os.path.exists(%r): time.sleep(0.05)\n"
    hook += "    return read(self)\npathlib.Path.read_bytes = read_bytes\n"
    (tmp_path / "sitecustomize.py").write_text(hook % str(tmp_path / "go on"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(worker_pool, "_MIN_BYTES_FOR_WORKERS", 0)
    checked = worker_pool.check_files(files, jobs=2)
    others = {next(checked).display_path for _ in range(8)}
    (tmp_path / "go on").write_text("")

    assert "m0.py" not in others
    assert [file.display_path for file in checked] == ["m0.py"]


def test_a_crashing_rule_becomes_a_finding_and_hides_no_other() -> None:
    def crash(_source: object) -> list[object]:
        msg = "boom"
        raise RuntimeError(msg)

    broken = RuleFile(rule=rule("SRC101").rule, page="", check_source=crash)  # type: ignore[arg-type]
    facts = check_text(
        f"import torch\n{DEAD}\n".encode(), file="m.py", module="m", package=False, rules=[broken, rule("SRC107")]
    )

    assert [s.code for s in facts.matches] == ["INT001", "SRC107"]
    assert "RuntimeError: boom" in facts.matches[0].found.facts["error"]


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("b.py", "import os\nflag = os.getenv('TORCH_USE_MINE')\n"),
        ("b.py", "flag = get_bool_env_var('TORCH_USE_MINE', '0')\n"),
        ("b.py", "VARIABLES = {'TORCH_USE_MINE': lambda: read('TORCH_USE_MINE')}\n"),
        ("b.cpp", 'auto flag = std::getenv("TORCH_USE_MINE");\n'),
        ("CMakeLists.txt", "if(DEFINED ENV{TORCH_USE_MINE})\nendif()\n"),
        ("b.sh", 'echo "${TORCH_USE_MINE}"\n'),
    ],
)
def test_a_variable_that_the_project_reads_is_allowed(tmp_path: Path, file: str, text: str) -> None:
    (tmp_path / "a.py").write_text("import os\nos.environ['TORCH_USE_MINE'] = '1'\n")
    alone = names(run(tmp_path))
    (tmp_path / file).write_text(text)

    assert alone == ["unread-variable"]
    assert names(run(tmp_path)) == []


@pytest.mark.parametrize("name", ["TORCH_NEURONX_CACHE", "PYTORCH_NPU_ALLOC_CONF", "GPU_BACKEND", "AMD_TOKEN"])
def test_a_name_of_another_program_is_not_reported(tmp_path: Path, name: str) -> None:
    (tmp_path / "a.py").write_text(f"import os\nos.environ['{name}'] = '1'\n")
    (tmp_path / "run.sh").write_text(f"export {name}=1\n")

    assert names(run(tmp_path)) == []


def test_values_are_not_reported_where_torch_captures_them(tmp_path: Path) -> None:
    text = "import torch\n{}@torch.compile\ndef f(x):\n    torch.cuda.synchronize()\n    return x * x.sum().item()\n"
    for setting, lines in (("", [4, 5]), ("torch._dynamo.config.capture_scalar_outputs = True\n", [5])):
        (tmp_path / "a.py").write_text(text.format(setting))
        found = lint([tmp_path], Options(select=("SRC123",)), jobs=1, cache=None).findings
        assert [int(f.location.rpartition(":")[2]) for f in found] == lines


def test_a_capture_in_a_test_is_followed_within_the_tests_only(tmp_path: Path) -> None:
    (tmp_path / "product.py").write_text("def total(x):\n    return x.sum().item()\n")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_product.py").write_text(
        "import torch\nfrom product import total\n\n\ndef helper(x):\n    return x.max().item()\n\n\n"
        "def test_total(x):\n    g = torch.cuda.CUDAGraph()\n    with torch.cuda.graph(g):\n        total(x)\n        helper(x)\n"
    )
    options = Options(select=("SRC201",), all_files=True)
    found = lint([tmp_path], options, jobs=1, cache=None).findings
    assert [Path(f.location.rpartition(":")[0]).name for f in found if f.facts["chain"]] == ["test_product.py"]


def test_findings_outside_the_product_are_reported_with_all_files(tmp_path: Path) -> None:
    text = "import torch\ntorch._inductor.config.group_fusion = True\n"
    for file in ("a.py", "tests/helper.py", "src/test_a.py", "benchmarks/b.py", "examples/c.py", "scripts/d.py"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(text)
    product, everything = run(tmp_path), run(tmp_path, all_files=True)

    assert [Path(f.location).name for f in product.findings] == ["a.py:2"]
    assert product.in_other_files == 5
    assert [f.facts["role"] for f in everything.findings] == ["", "benchmark", "example", "script", "test", "test"]
    assert everything.in_other_files == 0
    assert len(run(tmp_path / "tests").findings) == 1  # a folder that is linted by itself is the product


def test_a_compile_in_a_test_says_nothing_about_the_product(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("def forward(x):\n    return x.sum().item()\n")
    (tmp_path / "test_model.py").write_text("import torch\nfrom model import forward\ntorch.compile(forward)\n")

    assert names(run(tmp_path)) == []
    assert names(run(tmp_path, all_files=True)) == []


def test_a_rule_that_is_off_by_default_can_be_selected(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import torch\ntorch._dynamo.config.recompile_limit = 512\n")

    assert names(run(tmp_path)) == []
    assert names(run(tmp_path, select=("SRC",))) == ["recompile-limit-raised"]


PTX = """import triton
import triton.language as tl
@triton.jit
def fast_tanh(x):
    return tl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)
"""


@pytest.mark.parametrize(
    ("user", "reported"),
    [
        ("", True),
        ("from kernels import fast_tanh\ndef launch(x):\n    fast_tanh[(1,)](x)\n", True),
        ("import torch\nfrom kernels import fast_tanh\nif torch.version.hip is None:\n    fast_tanh[(1,)](0)\n", False),
        ("from checks import fancy\nfrom kernels import fast_tanh\nuse = fast_tanh if fancy() else None\n", True),
        ("from kernels import fast_tanh\nTABLE = {'cuda': fast_tanh}\n", False),
        ("from kernels import fast_tanh\ndef launch_sm90(x):\n    fast_tanh[(1,)](x)\n", False),
        (
            "from kernels import fast_tanh\ndef launch(x):\n    fast_tanh[(1,)](x)\ndef run(x):\n    if not is_hip():\n        launch(x)\n",
            False,
        ),
    ],
)
def test_uses_of_a_kernel_decide_whether_it_runs_on_amd(tmp_path: Path, user: str, reported: bool) -> None:  # noqa: FBT001
    (tmp_path / "kernels.py").write_text(PTX)
    (tmp_path / "use.py").write_text(user)

    assert names(run(tmp_path)) == (["inline-ptx"] if reported else [])


def test_an_imported_check_is_looked_up_in_its_module(tmp_path: Path) -> None:
    call = "import triton\nfrom checks import {name}\nif {name}():\n    c = [kernel[(1,)](x, num_warps=32)]\n"
    (tmp_path / "checks.py").write_text(
        "import torch\ndef fancy():\n    return torch.version.hip is None\ndef plain():\n    return True\n"
    )
    (tmp_path / "a.py").write_text(call.format(name="fancy"))
    (tmp_path / "b.py").write_text(call.format(name="plain"))

    assert [Path(f.location).name for f in run(tmp_path).findings] == ["b.py:4"]


def test_one_finding_for_each_host_sync(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(
        "import torch\n"
        "def train(loss): print(loss.item())\n"
        "@torch.compile\ndef step(x): return x.item()\n"
        "def capture(g, x):\n    with torch.cuda.graph(g):\n        y = x.item()\n    torch.cuda.synchronize()\n"
        "def serve(g):\n    g.replay()\n    torch.cuda.synchronize()\n"
        "def load(x): return x.cpu()\n"
    )
    record = lint([tmp_path], Options(confidence="anywhere", select=("SRC123", "SRC201")), jobs=1, cache=None)

    assert [(f.facts["function"], f.code, f.severity.name) for f in record.findings] == [
        ("train", "SRC123", "INFO"),
        ("step", "SRC123", "WARNING"),
        ("capture", "SRC201", "CRITICAL"),
        ("capture", "SRC123", "INFO"),
        ("serve", "SRC123", "INFO"),
        ("load", "SRC201", "INFO"),
    ]
    assert len(lint([tmp_path], Options(confidence="anywhere", select=("SRC201",)), jobs=1, cache=None).findings) == 4


def test_a_counter_in_init_is_no_hazard(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(
        "import torch\nclass Net(torch.nn.Module):\n    def __init__(self):\n        self.n = 0\n        self.n += 1\n"
        "    def forward(self, x):\n        self.n += 1\n"
    )
    record = lint([tmp_path], Options(confidence="anywhere", select=("SRC130",)), jobs=1, cache=None)

    assert [f.facts["function"] for f in record.findings] == ["Net.forward"]


@pytest.mark.parametrize(
    ("script", "tools"),
    [
        ("export GPUS=$(nvidia-smi --list-gpus | wc -l)\n", ["nvidia-smi"]),
        ("# nvidia-smi\nsudo nvidia-smi -pm 1\nnvcc --version\n", ["nvidia-smi", "nvcc"]),
        ("nvidia-smi || true\n", []),
        ("nvidia-smi -L 2>/dev/null\n", []),
        ("if nvidia-smi; then echo yes; fi\n", []),
        ("if command -v nvidia-smi; then\n  nvidia-smi\nfi\n", []),
        ("if [ -e /dev/kfd ]; then rocm-smi; else\n  nvidia-smi\nfi\n", []),
        ('echo "run nvidia-smi first"\n', []),
    ],
)
def test_finds_nvidias_tools_in_shell_scripts(tmp_path: Path, script: str, tools: list[str]) -> None:
    (tmp_path / "start.sh").write_text(script)
    record = lint([tmp_path / "start.sh"], Options(select=("nvidia-tool-called",)), jobs=1, cache=None)

    assert [f.subject for f in record.findings] == tools


def test_no_text_that_lint_prints_says_this_machine() -> None:
    """Source code is linted on any machine; the texts of the catalogue are also printed by the probe, which runs on one."""
    hazards = [hazard.why for setting in all_settings() for hazard in setting.hazards]

    assert [why for why in hazards if "this ROCm" in why or "this torch" in why or "this GPU" in why] == []
