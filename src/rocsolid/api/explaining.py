"""Explain anything that has a name."""

from rocsolid.catalog import registry
from rocsolid.catalog.profiles import PROFILES
from rocsolid.errors import UnknownNameError


def explain(name: str) -> str:
    """The page of a rule, a setting, a profile or a known problem, as Markdown.

    Args:
        name: a code such as `CFG001`, a rule's name, a setting's id, an environment variable, a profile, or a problem's id.

    Example:
        >>> import rocsolid as rs
        >>> print(rs.explain("inductor.group_fusion").splitlines()[0])
        # inductor.group_fusion

    """
    from rocsolid.report import pages

    for profile in PROFILES:
        if profile.name == name:
            return pages.profile_page(profile)
    if setting := registry.find(name):
        return pages.setting_page(setting)
    return _rule_or_problem(name)


def _rule_or_problem(name: str) -> str:
    """The larger half of what has a page, imported only when it is asked for."""
    from rocsolid.report import pages
    from rocsolid.rules.engine import all_rules, find_rule

    if rule := find_rule(name):
        return pages.rule_page(rule)
    from rocsolid.catalog.problems import all_problems

    for problem in all_problems():
        if problem.id == name:
            return pages.problem_page(problem)
    known = [
        *(p.name for p in PROFILES),
        *(text for s in registry.all_settings() for text in (s.id, s.name)),
        *(text for r in all_rules() for text in (r.rule.code, r.rule.name)),
        *(p.id for p in all_problems()),
    ]
    raise UnknownNameError(kind="rule, setting, profile or problem", name=name, known=known)
