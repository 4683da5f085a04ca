"""Finds the rules, runs those that judge a snapshot, and sorts what they found.

What a check judges is told by what it takes: an `Environment`, or the `Source` of a file.
"""

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Final

from rocsolid import rules
from rocsolid.errors import UnknownNameError
from rocsolid.model.environment import Environment
from rocsolid.model.finding import Finding, Rule, worst_first
from rocsolid.model.plan import Plan
from rocsolid.rules import check_crashed

if TYPE_CHECKING:  # the rules about source bring it; the others need not wait for it
    from rocsolid.model.source import Sighting, Source

Check = Callable[[Environment, Plan], Iterable[Finding]]
SourceCheck = Callable[["Source"], Iterable["Sighting"]]


@dataclass(frozen=True, kw_only=True)
class RuleFile:
    """A rule with its page and its check."""

    rule: Rule
    page: str
    check: Check | None = None  # over a snapshot
    inspect: SourceCheck | None = None  # over a file's source


# Which folder the codes of a family live in; a code is looked up there without importing the others.
_FOLDERS: Final = {
    "CFG": "config",
    "ENV": "variables",
    "SYS": "machine",
    "KNO": "machine",
    "ACT": "machine",
    "GRD": "runtime",
    "BRK": "observed",
    "OPR": "operators",
    "TRC": "traces",
    "SRC": "source",
    "DRY": "dryrun",
}


@cache
def all_rules() -> tuple[RuleFile, ...]:
    """Every rule in this package, by code; refuses a code used twice."""
    return _rules_in("")


@cache
def source_rules() -> tuple[RuleFile, ...]:
    """The rules that judge source, by code; nothing else is imported."""
    return _rules_in(_FOLDERS["SRC"])


@cache
def _snapshot_rules() -> tuple[RuleFile, ...]:
    """The rules that judge a snapshot; those about source are many, and a probe need not wait for them."""
    folders = sorted({folder for folder in _FOLDERS.values() if folder != _FOLDERS["SRC"]})
    return tuple(file for folder in folders for file in _rules_in(folder))


@cache
def _rules_in(folder: str) -> tuple[RuleFile, ...]:
    package = importlib.import_module(f"{rules.__name__}.{folder}") if folder else rules
    found: dict[str, RuleFile] = {}
    for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        module = importlib.import_module(info.name)
        rule = vars(module).get("RULE")
        if not isinstance(rule, Rule):
            continue
        if rule.code in found:
            msg = f"{rule.code} is declared twice: {found[rule.code].rule.name} and {rule.name}"
            raise ValueError(msg)
        found[rule.code] = _rule_file(rule, module)
    return tuple(found[code] for code in sorted(found))


def _rule_file(rule: Rule, module: ModuleType) -> RuleFile:
    check = vars(module).get("check")
    takes = next(iter(check.__annotations__.values())) if check else None
    if getattr(takes, "__name__", "") == "Source":
        return RuleFile(rule=rule, page=module.__doc__ or "", inspect=check)
    return RuleFile(rule=rule, page=module.__doc__ or "", check=check)


def find_rule(name: str) -> RuleFile | None:
    """The rule of that code or name."""
    code = name.upper()
    there = _rules_in(_FOLDERS[code[:3]]) if code[:3] in _FOLDERS else all_rules()
    found = next((r for r in there if code == r.rule.code), None)
    return found or next((r for r in all_rules() if name == r.rule.name), None)


def rule(name: str) -> RuleFile:
    """As `find_rule`, but raises UnknownNameError with the near matches."""
    found = find_rule(name)
    if found is None:
        known = [text for r in all_rules() for text in (r.rule.code, r.rule.name)]
        raise UnknownNameError(kind="rule", name=name, known=known)
    return found


def judge(env: Environment, plan: Plan, rule_files: Iterable[RuleFile] | None = None) -> list[Finding]:
    """All findings about a snapshot, worst first. A check that crashes is a finding itself, never silence."""
    return worst_first(list(_judge(env, plan, _snapshot_rules() if rule_files is None else rule_files)))


def _judge(env: Environment, plan: Plan, rule_files: Iterable[RuleFile]) -> Iterator[Finding]:
    for file in rule_files:
        if file.check is None:
            continue
        try:
            yield from list(file.check(env, plan))
        except Exception as crash:  # noqa: BLE001 - whatever a check raises must not hide the other checks
            import traceback

            yield check_crashed.RULE.found(
                file.rule.code,
                name=file.rule.name,
                error=f"{type(crash).__name__}: {crash}",
                trace=traceback.format_exc(),
            )
