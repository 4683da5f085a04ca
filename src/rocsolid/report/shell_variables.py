"""Writes the environment variables of a plan as shell commands, Dockerfile lines or JSON."""

import shlex
from collections.abc import Iterator

from rocsolid.catalog import registry
from rocsolid.model.codec import dumps
from rocsolid.model.plan import Decision, Plan
from rocsolid.model.setting import Channel


def variables_text(plan: Plan, shell: str) -> str:
    """Return lines that set and unset the variables, each with its reason, for bash, fish or a Dockerfile; or JSON."""
    decisions = [d for d in plan if d.channel is Channel.PROCESS]
    if shell == "json":
        variables = [{"name": d.name, "value": d.value, "why": d.why, "evidence": d.evidence} for d in decisions]
        return dumps("rocsolid/env/1", profile=plan.profile, platform=plan.platform, variables=variables)
    head = _comment(f"profile {plan.profile} for torch {plan.torch or '(none)'} on {plan.platform.label}")
    return "\n".join([head, *(line for d in decisions for line in _lines(d, shell))]) + "\n"


def _lines(decision: Decision, shell: str) -> Iterator[str]:
    yield _comment(decision.why)
    setting = registry.find(decision.id)
    if decision.value is None:
        for name in map(shlex.quote, (decision.name, *(setting.former_names if setting else ()))):
            yield {"bash": f"unset {name}", "fish": f"set -e {name}", "docker": f"# leave {name} unset"}[shell]
    else:
        name, value = shlex.quote(decision.name), shlex.quote(str(decision.value))
        template = {"bash": "export {}={}", "fish": "set -gx {} {}", "docker": "ENV {}={}"}[shell]
        yield template.format(name, value)


def _comment(text: str) -> str:
    """Return a comment that is one line whatever the text is."""
    return "# " + "".join(c if c.isprintable() else " " for c in text)
