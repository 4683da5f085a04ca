"""A known problem: a public bug, the versions it affects, its symptom and its fix."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rocsolid.model.evidence import Evidence
from rocsolid.model.finding import Severity
from rocsolid.model.setting import Condition

if TYPE_CHECKING:
    from rocsolid.model.environment import Environment


@dataclass(frozen=True, kw_only=True)
class KnownProblem:
    """One entry of the known-problem list."""

    id: str  # kebab-case, named after the hazard
    title: str
    when: Condition
    severity: Severity
    symptom: str
    fix: str
    verify: str  # how to check that the fix worked
    evidence: tuple[Evidence, ...]
    status: str  # open or "fixed in ...", when we last read the thread
    variables: tuple[
        str, ...
    ] = ()  # applies only if one of these matches: NAME (the variable is set), or NAME=text (its value contains the text)
    packages: tuple[str, ...] = ()  # applies only if one of these is installed
    calls: tuple[str, ...] = ()  # ids of the capture rules that the problem page lists
    covered_by: str = ""  # code of the rule that detects this problem on the machine itself
    check: str = ""  # the check of `rocsolid prove`, if it is not the program with the problem's own id
    undecidable: str = ""  # why no program decides whether a machine has the problem

    def applies(self, env: "Environment") -> bool:
        """Whether this machine can have the problem."""
        return (
            self.when.holds(env)
            and (not self.variables or any(_is_set(v, env) for v in self.variables))
            and (not self.packages or any(p in env.packages for p in self.packages))
        )


def _is_set(variable: str, env: "Environment") -> bool:
    name, equals, text = variable.partition("=")
    return name in env.variables and (not equals or text in env.variables[name])
