"""Find all rules, and check an environment with the rules for environments.

The first argument of a rule's `check` function decides what it checks: an `Environment`, or the `Source` of a file.
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

if TYPE_CHECKING:  # only the source rules need this module at run time
    from rocsolid.model.source import Source, SourceMatch

Check = Callable[[Environment, Plan], Iterable[Finding]]
SourceCheck = Callable[["Source"], Iterable["SourceMatch"]]


@dataclass(frozen=True, kw_only=True)
class RuleFile:
    """A rule with its documentation page and its check."""

    rule: Rule
    page: str
    check: Check | None = None  # checks an environment
    check_source: SourceCheck | None = None  # checks the source code of a file


# The folder of each code family, so that looking up one code does not import all rules.
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
    """Every rule, sorted by code. Raises ValueError if a code is used twice."""
    return _rules_in("")


@cache
def source_rules() -> tuple[RuleFile, ...]:
    """The rules that check source code, sorted by code. Imports only these."""
    return _rules_in(_FOLDERS["SRC"])


@cache
def _environment_rules() -> tuple[RuleFile, ...]:
    """All rules except those about source code, which are many and slow to import."""
    folders = sorted({folder for folder in _FOLDERS.values() if folder != _FOLDERS["SRC"]})
    return tuple(file for folder in folders for file in _rules_in(folder))


@cache
def _rules_in(folder: str) -> tuple[RuleFile, ...]:
    package = importlib.import_module(f"{rules.__name__}.{folder}") if folder else rules
    rules_by_code: dict[str, RuleFile] = {}
    for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        module = importlib.import_module(info.name)
        rule = vars(module).get("RULE")
        if not isinstance(rule, Rule):
            continue
        if rule.code in rules_by_code:
            msg = f"{rule.code} is declared twice: {rules_by_code[rule.code].rule.name} and {rule.name}"
            raise ValueError(msg)
        rules_by_code[rule.code] = _rule_file(rule, module)
    return tuple(rules_by_code[code] for code in sorted(rules_by_code))


def _rule_file(rule: Rule, module: ModuleType) -> RuleFile:
    check = vars(module).get("check")
    argument_type = next(iter(check.__annotations__.values())) if check else None
    if getattr(argument_type, "__name__", "") == "Source":
        return RuleFile(rule=rule, page=module.__doc__ or "", check_source=check)
    return RuleFile(rule=rule, page=module.__doc__ or "", check=check)


def find_rule(name: str) -> RuleFile | None:
    """The rule with this code or name, or None."""
    code = name.upper()
    candidates = _rules_in(_FOLDERS[code[:3]]) if code[:3] in _FOLDERS else all_rules()
    by_code = next((r for r in candidates if code == r.rule.code), None)
    return by_code or next((r for r in all_rules() if name == r.rule.name), None)


def rule(name: str) -> RuleFile:
    """The rule with this code or name. Raises UnknownNameError, which lists similar names."""
    rule_file = find_rule(name)
    if rule_file is None:
        known = [text for r in all_rules() for text in (r.rule.code, r.rule.name)]
        raise UnknownNameError(kind="rule", name=name, known=known)
    return rule_file


def check_environment(env: Environment, plan: Plan, rule_files: Iterable[RuleFile] | None = None) -> list[Finding]:
    """All findings about an environment, worst first. A check that raises an error becomes a finding itself."""
    return worst_first(list(_run_checks(env, plan, _environment_rules() if rule_files is None else rule_files)))


def _run_checks(env: Environment, plan: Plan, rule_files: Iterable[RuleFile]) -> Iterator[Finding]:
    for file in rule_files:
        if file.check is None:
            continue
        try:
            yield from list(file.check(env, plan))
        except Exception as crash:  # noqa: BLE001 - an error in one check must not hide the others
            import traceback

            yield check_crashed.RULE.found(
                file.rule.code,
                name=file.rule.name,
                error=f"{type(crash).__name__}: {crash}",
                trace=traceback.format_exc(),
            )
