"""Read source for hazards, without running it."""

from collections.abc import Sequence
from pathlib import Path

from rocsolid.lint.autofix import Fixed, fixes
from rocsolid.lint.fact_cache import default_store
from rocsolid.lint.options import Options, find_pyproject, read_options
from rocsolid.lint.project import lint as lint_project
from rocsolid.lint.worker_pool import default_jobs
from rocsolid.model.lint import LintRecord


def lint(
    *paths: str | Path,
    confidence: str | None = None,
    select: Sequence[str] | None = None,
    ignore: Sequence[str] | None = None,
    exclude: Sequence[str] | None = None,
    baseline: str | Path | None = None,
    config: str | Path | None = None,
    jobs: int | None = None,
    cache: bool = True,
) -> LintRecord:
    """Hazards of compiled, captured and ported code in Python files, read from source; nothing is run or imported.

    What is not given here is taken from `[tool.rocsolid.lint]` of the nearest pyproject.toml.

    Args:
        paths: files and folders, linted together as one project; without any, the current folder.
        confidence: `inside` shows what stands in a compiled or captured region, `reachable` (the default) also what one
            leads to, `anywhere` everything.
        select: only these rules, by code, beginning of a code or name.
        ignore: without these.
        exclude: patterns of files and folders to leave out.
        baseline: a file of known findings to leave out.
        config: another pyproject.toml than the nearest; an empty text reads none.
        jobs: how many processes read files; as many as there are cores unless said otherwise.
        cache: keep what was read in `.rocsolid/`, by content.

    Example:
        >>> import pathlib, tempfile
        >>> import rocsolid as rs
        >>> file = pathlib.Path(tempfile.mkdtemp()) / "train.py"
        >>> _ = file.write_text("import torch; torch._inductor.config.group_fusion = True")
        >>> [f.name for f in rs.lint(file, cache=False).findings]
        ['dead-setting']

    """
    files = [Path(path) for path in paths] or [Path()]
    pyproject = find_pyproject(files[0]) if config is None else Path(config) if str(config) else None
    options = read_options(
        pyproject,
        confidence=confidence,
        select=_tuple(select),
        ignore=_tuple(ignore),
        exclude=_tuple(exclude),
        baseline=str(baseline) if baseline is not None else None,
    )
    return run_lint(files, options, root=pyproject.parent if pyproject else Path(), jobs=jobs, cache=cache)


def run_lint(files: Sequence[Path], options: Options, *, root: Path, jobs: int | None, cache: bool) -> LintRecord:
    """As `lint`, with the options already read."""
    store = default_store(root) if cache else None
    return lint_project(files, options, jobs=jobs or default_jobs(), cache=store)


def propose_fixes(record: LintRecord) -> list[Fixed]:
    """What `--fix` would write, file by file; raises MissingExtraError without libcst."""
    return fixes(record.findings)


def _tuple(names: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if names is None else tuple(names)
