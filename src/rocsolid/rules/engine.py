"""Finds the rules, runs those that judge a snapshot, and sorts what they found."""

import importlib
import pkgutil
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Final

from rocsolid import rules
from rocsolid.errors import UnknownNameError
from rocsolid.model.environment import Environment
from rocsolid.model.finding import Finding, Rule, worst_first
from rocsolid.model.plan import Plan
from rocsolid.rules import check_crashed

Check = Callable[[Environment, Plan], Iterable[Finding]]


@dataclass(frozen=True, kw_only=True)
class RuleFile:
    """A rule with its page and its check."""

    rule: Rule
    page: str
    check: Check | None


# Which folder the codes of a family live in; a code is looked up there without importing the others.
_FOLDERS: Final = {
    "CFG": "config",
    "ENV": "variables",
    "SYS": "machine",
    "KNO": "machine",
    "ACT": "machine",
    "GRD": "runtime",
    "DRY": "dryrun",
}


@cache
def all_rules() -> tuple[RuleFile, ...]:
    """Every rule in this package, by code; refuses a code used twice."""
    return _rules_in("")


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
        found[rule.code] = RuleFile(rule=rule, page=module.__doc__ or "", check=vars(module).get("check"))
    return tuple(found[code] for code in sorted(found))


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
    return worst_first(list(_judge(env, plan, all_rules() if rule_files is None else rule_files)))


def _judge(env: Environment, plan: Plan, rule_files: Iterable[RuleFile]) -> Iterator[Finding]:
    for file in rule_files:
        if file.check is None:
            continue
        try:
            yield from list(file.check(env, plan))
        except Exception as crash:  # noqa: BLE001 - whatever a check raises must not hide the other checks
            yield check_crashed.RULE.found(
                file.rule.code,
                name=file.rule.name,
                error=f"{type(crash).__name__}: {crash}",
                trace=traceback.format_exc(),
            )
