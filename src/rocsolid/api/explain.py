"""Explain anything that has a name."""

from rocsolid.catalog import registry
from rocsolid.catalog.profiles import PROFILES
from rocsolid.errors import UnknownNameError


def explain(name: str) -> str:
    """The page of a rule, a setting, a profile, a known problem, or a runtime's call or error in a capture, as Markdown.

    Args:
        name: a code such as `CFG001`, a rule's name, a setting's id, an environment variable, a profile, a problem's id, a call
            such as `hipEventQuery`, `cudaEventQuery` or `torch.cuda.Event.query`, or an error such as `906`.

    Example:
        >>> import rocsolid as rs
        >>> print(rs.explain("inductor.group_fusion").splitlines()[0])
        # inductor.group_fusion

    """
    from rocsolid.report import reference_pages

    for profile in PROFILES:
        if profile.name == name:
            return reference_pages.profile_page(profile)
    if setting := registry.find(name):
        return reference_pages.setting_page(setting)
    return _rule_problem_or_call(name)


def _rule_problem_or_call(name: str) -> str:
    """The larger half of what has a page, imported only when it is asked for."""
    from rocsolid.report import reference_pages
    from rocsolid.rules.engine import all_rules, find_rule

    if rule := find_rule(name):
        return reference_pages.rule_page(rule)
    from rocsolid.catalog.problems import all_problems

    for problem in all_problems():
        if problem.id == name:
            return reference_pages.problem_page(problem)
    from rocsolid.catalog.capture_rules import CAPTURE_RULES, rules_of
    from rocsolid.catalog.runtime_errors import RUNTIME_ERRORS, error_named
    from rocsolid.report import capture_rules

    if rules := rules_of(name):
        return capture_rules.call_page(rules)
    if error := error_named(name):
        return capture_rules.error_page(error)
    known = [
        *(p.name for p in PROFILES),
        *(text for s in registry.all_settings() for text in (s.id, s.name)),
        *(text for r in all_rules() for text in (r.rule.code, r.rule.name)),
        *(p.id for p in all_problems()),
        *(text for r in CAPTURE_RULES for text in (r.call, r.cuda_call, *r.torch)),
        *(text for e in RUNTIME_ERRORS for text in e.names),
    ]
    raise UnknownNameError(kind="rule, setting, profile, problem, call or error", name=name, known=known)
