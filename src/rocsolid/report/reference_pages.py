"""A page for each rule, setting, profile and known problem, in Markdown: `explain` prints it, the docs publish it."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from rocsolid.catalog.profiles import chain
from rocsolid.catalog.registry import all_settings
from rocsolid.model.evidence import Evidence
from rocsolid.model.setting import EVERYWHERE, Channel, Hazard, Profile, Recommendation, Setting

if TYPE_CHECKING:  # a setting's page needs neither
    from rocsolid.model.known_problem import KnownProblem
    from rocsolid.rules.engine import RuleFile

_FILLED_IN: Final = re.compile(r"(?<!\{)\{(\w+)(?:![rsa])?(?::[^{}]*)?\}")
_CHANNELS = {
    Channel.OPTION: "rides on the compiled function as an option, and so reaches every thread",
    Channel.SCOPE: "is set around the compiling call; since torch 2.12 an assignment holds in its own thread only",
    Channel.ARGUMENT: "is an argument of `torch.compile`",
    Channel.PROCESS: "must be in the environment before the process starts",
}


def rule_page(file: "RuleFile") -> str:
    """What a rule looks for, why, and every sentence it may utter."""
    rule = file.rule
    summary, _, page = file.page.strip().partition("\n")
    severity = rule.severity.name
    lines = [
        f"# {rule.code} {rule.name}",
        "",
        summary,
        "",
        f"Severity: {severity} unless the value seen is worse or better here. Since {rule.since}.",
        page.rstrip(),
        "",
        "## What it says",
        *(f"- *{label}*: {text}" for label, text in _templates(file)),
    ]
    lines += ["", "## Evidence", *evidence_list(rule.evidence)] if rule.evidence else []
    return "\n".join(lines) + "\n"


def _templates(file: "RuleFile") -> Iterator[tuple[str, str]]:
    """The sentences, with the names of what is filled in."""
    rule = file.rule
    for label, text in (("seen", rule.message), ("why", rule.why), ("fix", rule.fix), ("check", rule.check)):
        named = _FILLED_IN.sub(lambda found: f"‹{found[1].replace('_', ' ')}›", text)
        yield label, named.replace("{{", "{").replace("}}", "}")


def setting_page(setting: Setting) -> str:
    """What a setting does, how it can be moved, what we advise, and why."""
    lines = [f"# {setting.id}", "", setting.summary, ""]
    lines += [
        f"- type: `{setting.value_type.__name__}`",
        f"- it {_CHANNELS[setting.channel]}",
        f"- {_variable(setting)}",
    ]
    if setting.valid != EVERYWHERE:
        lines.append(f"- exists: {setting.valid}")
    if setting.former_names:
        lines.append(f"- former names: {', '.join(f'`{n}`' for n in setting.former_names)}")
    if setting.candidates:
        lines.append(f"- the tuner tries: {', '.join(f'`{c!r}`' for c in setting.candidates)}")
    for text in (f"**No effect.** {setting.no_effect}" if setting.no_effect else "", setting.notes):
        lines += ["", text] if text else []
    if setting.disagreement:
        lines += ["", "## Where guides disagree", setting.disagreement]
    if setting.recommendations:
        lines += ["", "## What the profiles choose", *(line for c in setting.recommendations for line in _choice(c))]
    if setting.hazards:
        lines += ["", "## Values that hurt", *(line for h in setting.hazards for line in _hazard(h))]
    if setting.evidence:
        lines += ["", "## Evidence", *evidence_list(setting.evidence)]
    return "\n".join(lines) + "\n"


def _variable(setting: Setting) -> str:
    variable = setting.variable
    if setting.channel is Channel.PROCESS:
        return "it is itself an environment variable"
    if variable is None:
        return "no environment variable moves it"
    if variable.overrides_config:
        return f"`{variable.name}` **forces** it: no assignment and no option changes it while the variable is set"
    presence = " (any value but an empty one, `0` included)" if variable.any_value_enables else ""
    return f"`{variable.name}` moves its default{presence}, read when torch's compiler is imported; an assignment wins over it"


def _choice(choice: Recommendation) -> Iterator[str]:
    guard = " A caller's own value does not win." if choice.guard else ""
    value = "not set" if choice.value is None else f"`{choice.value!r}`"
    yield f"- **{choice.profile}**: {value}, {_where(choice)}: {choice.why}{guard}"
    yield from (f"    {line}" for line in evidence_list(choice.evidence))


def _hazard(hazard: Hazard) -> Iterator[str]:
    value = f"`{hazard.value!r}`" if hazard.value != "" else "any value"
    yield f"- {hazard.severity.name}: {value}, {_where(hazard)}: {hazard.why}"
    yield from (f"    {line}" for line in evidence_list(hazard.evidence))


def _where(thing: Recommendation | Hazard) -> str:
    return str(thing.when) if thing.when != EVERYWHERE else "everywhere"


def profile_page(profile: Profile) -> str:
    """Every value a profile chooses, and where each comes from."""
    names = [p.name for p in chain(profile.name)]
    lines = [f"# Profile {profile.name}", "", profile.intent, ""]
    lines += [f"It extends {profile.extends}.", ""] if profile.extends else []
    for setting in all_settings():
        for choice in sorted(
            (c for c in setting.recommendations if c.profile in names), key=lambda c: names.index(c.profile)
        ):
            value = "not set" if choice.value is None else f"{choice.value!r}"
            own = "" if choice.profile == profile.name else f" (from {choice.profile})"
            guard = ", insisted on" if choice.guard else ""
            lines.append(f"- `{setting.id}` = {value}, {_where(choice)}{guard}{own}: {choice.why}")
    disputed = [s for s in all_settings() if s.disagreement]
    lines += ["", "## Where guides disagree", *(f"- `{s.id}`: {s.disagreement}" for s in disputed)]
    return "\n".join(lines) + "\n"


def problem_page(problem: "KnownProblem") -> str:
    """One known problem."""
    lines = [
        f"# {problem.title}",
        "",
        f"- id: `{problem.id}`",
        f"- where: {problem.when}",
        f"- severity: {problem.severity.name}",
        f"- status: {problem.status}",
    ]
    if problem.variables:
        lines.append(f"- only with: {', '.join(f'`{v}`' for v in problem.variables)}")
    if problem.packages:
        lines.append(f"- only with the packages: {', '.join(f'`{p}`' for p in problem.packages)}")
    if problem.covered_by:
        lines.append(f"- reported by the rule {problem.covered_by}")
    for title, text in (
        ("Symptom", problem.symptom),
        ("Fix", problem.fix),
        ("How to verify the fix", problem.verify),
    ):
        lines += ["", f"## {title}", text]
    if problem.calls:
        from rocsolid.catalog.capture_rules import (
            describe_behavior,
        )  # `explain` of anything else need not wait for the table

        lines += [
            "",
            "## What runtimes do with the calls behind it",
            *(f"- {describe_behavior(call)}" for call in problem.calls),
        ]
        lines += ["", "In the mode of `torch.cuda.graph`; `rocsolid explain CALL` tells the others."]
    lines += ["", "## Evidence", *evidence_list(problem.evidence)]
    return "\n".join(lines) + "\n"


def evidence_list(evidence: tuple[Evidence, ...]) -> list[str]:
    """Evidence as a list, strongest first, issues as links."""
    ranked = sorted(evidence, key=lambda e: -e.rank)
    return [f"- {e.rank.name.lower()}: {e.statement} ({f'[{e.ref}]({e.url})' if e.url else e.ref})" for e in ranked]
