"""Check the result of a dry run."""

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Iterator

from rocsolid.model.dryrun import DryRun
from rocsolid.model.finding import Finding, worst_first
from rocsolid.rules import dryrun

RunCheck = Callable[[DryRun], Iterable[Finding]]


def run_checks() -> Iterator[tuple[str, RunCheck]]:
    """Code and check of every dry-run rule."""
    for info in pkgutil.iter_modules(dryrun.__path__, f"{dryrun.__name__}."):
        module = importlib.import_module(info.name)
        if hasattr(module, "check_run"):
            yield module.RULE.code, module.check_run


def check_dry_run(run: DryRun) -> list[Finding]:
    """All findings about a dry run, worst first."""
    return worst_first([finding for _, check in run_checks() for finding in check(run)])
