"""Lint source files for hazards, without running them."""

from collections.abc import Sequence
from pathlib import Path

from rocsolid.errors import require_type
from rocsolid.lint.autofix import FixedFile, fix_files
from rocsolid.lint.fact_cache import default_path
from rocsolid.lint.options import Options, find_pyproject, read_options
from rocsolid.lint.project import lint as lint_project
from rocsolid.lint.worker_pool import default_jobs
from rocsolid.model.lint import LintRecord


def lint(  # noqa: PLR0913 - the options of the command
    *paths: str | Path,
    confidence: str | None = None,
    select: Sequence[str] | None = None,
    ignore: Sequence[str] | None = None,
    exclude: Sequence[str] | None = None,
    baseline: str | Path | None = None,
    config: str | Path | None = None,
    all_files: bool | None = None,
    target: str | None = None,
    jobs: int | None = None,
    cache: bool = True,
) -> LintRecord:
    """Find hazards for `torch.compile`, CUDA graphs and ROCm in Python source; nothing is run or imported.

    Options that are not given are read from `[tool.rocsolid.lint]` in the nearest pyproject.toml.

    Args:
        paths: files and folders, linted together as one project; default: the current folder.
        confidence: `inside` reports findings in compiled or captured functions, `reachable` (the default) also those in
            functions that they call, `anywhere` all.
        select: only these rules, by code, prefix of a code or name. Default: the rules that are on by default.
        ignore: not these rules.
        exclude: patterns of files and folders to skip.
        baseline: a file of known findings, which are not reported.
        config: a pyproject.toml to read instead of the nearest; an empty string reads none.
        all_files: also report findings in tests, benchmarks, examples and scripts.
        target: a GPU, for example `gfx942` or `gfx942@7.2.1`; values of settings that cause problems there are reported with
            their severity on that GPU.
        jobs: number of worker processes; default: one per CPU core.
        cache: store the facts of unchanged files in `.rocsolid/`.

    Example:
        >>> import pathlib, tempfile
        >>> import rocsolid as rs
        >>> file = pathlib.Path(tempfile.mkdtemp()) / "train.py"
        >>> _ = file.write_text("import torch; torch._inductor.config.group_fusion = True")
        >>> [f.name for f in rs.lint(file, cache=False).findings]
        ['dead-setting']

    """
    for path in paths:
        require_type("rs.lint: each path", path, (str, Path), "a file or a folder")
    files = [Path(path) for path in paths] or [Path()]
    pyproject = find_pyproject(files[0]) if config is None else Path(config) if str(config) else None
    options = read_options(
        pyproject,
        confidence=confidence,
        select=_tuple(select),
        ignore=_tuple(ignore),
        exclude=_tuple(exclude),
        baseline=str(baseline) if baseline is not None else None,
        all_files=all_files,
        target=target,
    )
    return run_lint(files, options, root=pyproject.parent if pyproject else Path(), jobs=jobs, cache=cache)


def run_lint(files: Sequence[Path], options: Options, *, root: Path, jobs: int | None, cache: bool) -> LintRecord:
    """Like `lint`, with options that are already read."""
    path = default_path(root) if cache else None
    return lint_project(files, options, jobs=jobs or default_jobs(), cache=path)


def propose_fixes(record: LintRecord) -> list[FixedFile]:
    """The files that `--fix` would change; raises MissingExtraError without libcst."""
    return fix_files(record.findings)


def _tuple(names: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if names is None else tuple(names)
