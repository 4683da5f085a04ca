"""The Markdown page of each rule, setting, profile and known problem, for `rocsolid explain` and for the docs."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from rocsolid.catalog.idle_causes import IdleCauseInfo
from rocsolid.catalog.profiles import chain
from rocsolid.catalog.registry import all_settings
from rocsolid.model.evidence import Evidence
from rocsolid.model.known_problem import KnownProblem
from rocsolid.model.release import EVERY_RELEASE
from rocsolid.model.setting import EVERYWHERE, Channel, Hazard, Profile, Recommendation, Setting

if TYPE_CHECKING:  # not needed for the page of a setting
    from rocsolid.model.finding import Rule
    from rocsolid.rules.engine import RuleFile

_PLACEHOLDER: Final = re.compile(r"(?<!\{)\{(\w+)(?:![rsa])?(?::[^{}]*)?\}")
_CHANNELS = {
    Channel.OPTION: "an option of the compiled function, so it applies in every thread",
    Channel.SCOPE: "assigned for the duration of the call that compiles, then restored; since torch 2.12 only in that thread",
    Channel.ARGUMENT: "an argument of `torch.compile`",
    Channel.PROCESS: "the setting is an environment variable; rocsolid sets it before the process starts",
}


def rule_page(file: "RuleFile", judged: str = "") -> str:
    """What a rule checks for, why, and the templates of its messages. `judged` is a sentence about its precision."""
    rule = file.rule
    summary, _, page = file.page.strip().partition("\n")
    lines = [
        f"# {rule.code} {rule.name}",
        "",
        summary,
        "",
        f"Default severity: {rule.severity.name}.{_severity_note(rule)} Since version {rule.since}.{_default_note(rule)}",
        *(["", judged] if judged else []),
        page.rstrip(),
        "",
        "## Messages",
        *(f"- *{label}*: {text}" for label, text in _templates(file)),
    ]
    lines += ["", "## Evidence", *evidence_list(rule.evidence)] if rule.evidence else []
    return "\n".join(lines) + "\n"


def _default_note(rule: "Rule") -> str:
    return "" if rule.on_by_default else f" Off by default: `rocsolid lint --select {rule.code}`."


def _severity_note(rule: "Rule") -> str:
    """A sentence for the rules whose severity depends on the value of a setting or variable."""
    if "{harm" not in rule.why:
        return ""
    return " It is raised or lowered if the catalogue rates the value differently for this machine."


def _templates(file: "RuleFile") -> Iterator[tuple[str, str]]:
    """Yield label and template of each message; placeholders are shown as ‹name›."""
    rule = file.rule
    for label, text in (("message", rule.message), ("why", rule.why), ("fix", rule.fix), ("check", rule.check)):
        named = _PLACEHOLDER.sub(lambda found: f"‹{found[1].replace('_', ' ')}›", text)
        yield label, named.replace("{{", "{").replace("}}", "}")


def setting_page(setting: Setting) -> str:
    """What a setting does, what can change it, what the profiles choose, and why."""
    lines = [f"# {setting.id}", "", setting.summary, ""]
    lines += [f"- type: `{setting.value_type.__name__}`", f"- how rocsolid sets it: {_CHANNELS[setting.channel]}"]
    if setting.channel is not Channel.PROCESS:
        lines.append(f"- environment variable: {_variable(setting)}")
    if setting.valid != EVERYWHERE:
        lines.append(f"- available on: {setting.valid}" + (f". {setting.elsewhere}" if setting.elsewhere else ""))
    if setting.former_names:
        lines.append(f"- former names: {', '.join(f'`{n}`' for n in setting.former_names)}")
    if setting.candidates:
        lines.append(f"- values that `rocsolid tune` tries: {', '.join(f'`{c!r}`' for c in setting.candidates)}")
    for text in (f"**No effect.** {setting.no_effect}" if setting.no_effect else "", setting.notes):
        lines += ["", text] if text else []
    if setting.disagreement:
        lines += ["", "## Where guides disagree", setting.disagreement]
    if setting.recommendations:
        lines += ["", "## What the profiles choose", *(line for c in setting.recommendations for line in _choice(c))]
    if setting.hazards:
        lines += ["", "## Harmful values", *(line for h in setting.hazards for line in _hazard(h, setting))]
    if setting.evidence:
        lines += ["", "## Evidence", *evidence_list(setting.evidence)]
    return "\n".join(lines) + "\n"


def _variable(setting: Setting) -> str:
    variable = setting.variable
    if variable is None:
        return "none"
    if variable.overrides_config:
        return f"`{variable.name}` **forces** the value: while it is set, assignments and options have no effect"
    since = "" if variable.torch == EVERY_RELEASE else f" with torch {variable.torch}"
    any_value = " (any non-empty value enables it, even `0`)" if variable.any_value_enables else ""
    return f"`{variable.name}` changes the default{since}{any_value} when torch's compiler is imported; an assignment overrides it"


def _choice(choice: Recommendation) -> Iterator[str]:
    guard = " `rocsolid run` and `rs.guard` enforce this value." if choice.guard else ""
    value = "not set" if choice.value is None else f"`{choice.value!r}`"
    yield f"- **{choice.profile}** ({_where(choice)}): {value}. {choice.why}{guard}"
    yield from (f"    {line}" for line in evidence_list(choice.evidence))


def _hazard(hazard: Hazard, setting: Setting) -> Iterator[str]:
    value = f"`{hazard.value!r}`" if hazard.value != "" else "any value"
    where = _where(hazard) if hazard.when != EVERYWHERE or setting.valid == EVERYWHERE else str(setting.valid)
    yield f"- {hazard.severity.name} ({where}): {value}. {hazard.why}"
    yield from (f"    {line}" for line in evidence_list(hazard.evidence))


def _where(thing: Recommendation | Hazard) -> str:
    return str(thing.when) if thing.when != EVERYWHERE else "all platforms"


def profile_page(profile: Profile) -> str:
    """Every value that a profile chooses, with its reason."""
    names = [p.name for p in chain(profile.name)]
    lines = [f"# Profile {profile.name}", "", profile.intent, ""]
    lines += [f"It extends {profile.extends}.", ""] if profile.extends else []
    for setting in all_settings():
        for choice in sorted(
            (c for c in setting.recommendations if c.profile in names), key=lambda c: names.index(c.profile)
        ):
            value = "not set" if choice.value is None else f"{choice.value!r}"
            inherited = "" if choice.profile == profile.name else f"; from {choice.profile}"
            guard = "; enforced by the guard" if choice.guard else ""
            lines.append(f"- `{setting.id}` = {value} ({_where(choice)}{guard}{inherited}): {choice.why}")
    disputed = [s for s in all_settings() if s.disagreement]
    lines += ["", "## Where guides disagree", *(f"- `{s.id}`: {s.disagreement}" for s in disputed)]
    return "\n".join(lines) + "\n"


def problem_page(problem: "KnownProblem") -> str:
    """One known problem."""
    lines = [
        f"# {problem.title}",
        "",
        f"- id: `{problem.id}`",
        f"- affects: {problem.when}",
        f"- severity: {problem.severity.name}",
        f"- status: {problem.status}",
    ]
    if problem.variables:
        lines.append(f"- only if this variable is set: {', '.join(f'`{v}`' for v in problem.variables)}")
    if problem.packages:
        lines.append(f"- only with this package: {', '.join(f'`{p}`' for p in problem.packages)}")
    if problem.covered_by:
        lines.append(f"- reported by rule {problem.covered_by}")
    for title, text in (
        ("Symptom", problem.symptom),
        ("Fix", problem.fix),
        ("How to verify the fix", problem.verify),
    ):
        lines += ["", f"## {title}", text]
    if problem.calls:
        from rocsolid.catalog.capture_rules import describe_behavior

        lines += [
            "",
            "## What HIP and CUDA do with the calls involved",
            *(f"- {describe_behavior(call)}" for call in problem.calls),
        ]
        lines += [
            "",
            (
                "This is the behaviour in the capture mode that `torch.cuda.graph` uses; `rocsolid explain "
                "CALL` shows the other modes."
            ),
        ]
    lines += ["", "## Evidence", *evidence_list(problem.evidence)]
    return "\n".join(lines) + "\n"


def idle_cause_page(info: IdleCauseInfo) -> str:
    """One cause of idle time."""
    lines = [f"# Idle time: {info.cause.value}", "", _sentence(info.meaning), "", f"What helps: {info.fix}."]
    if info.rule:
        lines += ["", f"Reported by rule {info.rule} where it takes much of the time."]
    return "\n".join(lines) + "\n"


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def evidence_list(evidence: tuple[Evidence, ...]) -> list[str]:
    """Evidence as a list, strongest first, with links to issues."""
    ranked = sorted(evidence, key=lambda e: -e.rank)
    return [f"- {e.rank.name.lower()}: {e.statement} ({f'[{e.ref}]({e.url})' if e.url else e.ref})" for e in ranked]
