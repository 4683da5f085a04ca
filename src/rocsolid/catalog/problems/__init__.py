"""Known problems: public bugs of torch, ROCm, CUDA and libraries, with affected versions, symptom, fix and a check of the fix."""

from functools import cache

from rocsolid.catalog.problems import autotune, capture, compiler, machine, recovery, replay
from rocsolid.errors import UnknownNameError
from rocsolid.model.known_problem import KnownProblem


@cache
def all_problems() -> tuple[KnownProblem, ...]:
    """Every known problem; raises ValueError if an id is used twice."""
    modules = (replay, capture, recovery, compiler, autotune, machine)
    problems = tuple(problem for module in modules for problem in module.PROBLEMS)
    ids = [p.id for p in problems]
    if len(set(ids)) != len(ids):
        msg = f"a problem is declared twice: {sorted(i for i in ids if ids.count(i) > 1)}"
        raise ValueError(msg)
    return problems


def problem(name: str) -> KnownProblem:
    """The problem with this id; raises UnknownNameError with similar ids."""
    for candidate in all_problems():
        if candidate.id == name:
            return candidate
    raise UnknownNameError(kind="problem", name=name, known=[p.id for p in all_problems()])
