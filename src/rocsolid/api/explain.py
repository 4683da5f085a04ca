"""Explain a rule, setting, profile, known problem, runtime call or error, or a cause of idle time, by its name."""

from rocsolid.catalog import registry
from rocsolid.catalog.profiles import PROFILES, resolve
from rocsolid.errors import UnknownNameError, UsageError, require_type
from rocsolid.model.known_problem import KnownProblem
from rocsolid.model.setting import Profile, Setting


def explain(name: str) -> str:
    """Return the reference page of a rule, setting, profile, known problem, runtime call or error, or cause of idle time, as Markdown.

    Args:
        name: a rule's code (`CFG001`) or name, a setting's id (`inductor.max_autotune`) or its last part
            (`max_autotune`), an environment variable, a profile, a known problem's id, a runtime call (`hipEventQuery`,
            `cudaEventQuery`, `torch.cuda.Event.query`), a runtime error (`906`), or a cause of idle time (`late-launch`).

    Example:
        >>> import rocsolid as rs
        >>> print(rs.explain("max_autotune").splitlines()[0])
        # inductor.max_autotune

    """
    from rocsolid.report import reference_pages

    require_type("rs.explain: name", name, str, "a name, such as 'max_autotune'")
    for profile in PROFILES:
        if profile.name == name:
            return reference_pages.profile_page(profile) + on_simulated_chip(profile)
    if setting := find_setting(name):
        return reference_pages.setting_page(setting) + on_simulated_chip(setting)
    return _explain_other(name)


def find_setting(name: str) -> Setting | None:
    """Find a setting by its id, a former id, its environment variable, or the last part of its id.

    Raises UsageError if several setting ids end with the name.
    """
    if setting := registry.find(name):
        return setting
    matches = registry.find_short(name)
    if len(matches) > 1:
        msg = f"several setting ids end with {name!r}: {', '.join(s.id for s in matches)}; write the full id"
        raise UsageError(msg)
    return matches[0] if matches else None


def on_simulated_chip(page: Setting | Profile | KnownProblem) -> str:
    """What holds on the chip and release that are simulated, as a section of the page; empty without a simulated chip."""
    from rocsolid.probe.pretended import pretended_chip

    chip = pretended_chip()
    if chip is None:
        return ""
    from rocsolid.probe.quick_facts import quick_environment

    env = quick_environment()
    if isinstance(page, KnownProblem):
        lines = [f"This release and chip are {'' if page.when.holds(env) else 'not '}affected."]
    elif isinstance(page, Profile):
        lines = [f"- `{d.id}` = {_shown(d.value)}" for d in resolve(page.name, env)]
    elif not page.valid.holds(env):
        lines = [f"It has no effect: it is read only on {page.valid}."]
    else:
        chosen = [(profile.name, resolve(profile.name, env).get(page.id)) for profile in PROFILES]
        lines = [f"- profile {name}: {_shown(d.value)}" for name, d in chosen if d]
        harmful = {repr(h.value): h for h in sorted(page.hazards, key=lambda h: h.severity) if h.when.holds(env)}
        lines += [
            f"- {h.severity.name}: {_shown(h.value) if h.value != '' else 'any value'}. {h.why}"
            for h in harmful.values()
        ]
    none = ["No profile changes it, and no value is known to be harmful."]
    return "\n".join(["", f"## On {chip.label} (simulated)", *(lines or none)]) + "\n"


def _shown(value: object) -> str:
    return "not set" if value is None else f"`{value!r}`"


def _explain_other(name: str) -> str:
    """Return the page of a rule, problem, call or error. Their modules are slow to import, so they are imported here."""
    from rocsolid.report import reference_pages
    from rocsolid.rules.engine import all_rules, find_rule

    if rule := find_rule(name):
        return reference_pages.rule_page(rule)
    from rocsolid.catalog.problems import all_problems

    for problem in all_problems():
        if problem.id == name:
            return reference_pages.problem_page(problem) + on_simulated_chip(problem)
    from rocsolid.catalog.capture_rules import CAPTURE_RULES, rules_of
    from rocsolid.catalog.runtime_errors import RUNTIME_ERRORS, error_named
    from rocsolid.report import capture_rules

    if rules := rules_of(name):
        return capture_rules.call_page(rules)
    if error := error_named(name):
        return capture_rules.error_page(error)
    from rocsolid.catalog.idle_causes import IDLE_CAUSES

    for info in IDLE_CAUSES:
        if info.cause.value == name:
            return reference_pages.idle_cause_page(info)
    known = [
        *(p.name for p in PROFILES),
        *(s.id for s in registry.all_settings()),
        *(s.variable.name for s in registry.all_settings() if s.variable),
        *(s.name for s in registry.all_settings()),
        *(text for r in all_rules() for text in (r.rule.code, r.rule.name)),
        *(p.id for p in all_problems()),
        *(text for r in CAPTURE_RULES for text in (r.call, r.cuda_call, *r.torch_callers)),
        *(text for e in RUNTIME_ERRORS for text in e.names),
        *(info.cause.value for info in IDLE_CAUSES),
    ]
    raise UnknownNameError(kind="name", name=name, known=known, listed_by="rocsolid explain --help")
