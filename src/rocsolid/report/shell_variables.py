"""Writes the environment variables of a plan as shell commands, Dockerfile lines or JSON."""

import shlex
import textwrap
from collections.abc import Iterator, Sequence

from rocsolid.catalog import registry
from rocsolid.model.codec import dumps
from rocsolid.model.plan import Decision, Plan
from rocsolid.model.setting import Channel

_WIDTH = 80
_MORE = (
    "Fixes for known problems of this chip and release: rocsolid probe. Faster values for your model: rocsolid tune."
)
_FAST = "These are all values that were faster in a measurement on this platform."


def variables_text(plan: Plan, shell: str, *, simulated: str = "") -> str:
    """Return lines that set and unset the variables, each with its reason, for bash, fish or a Dockerfile; or JSON.

    `simulated` is the chip and release if they are not those of this machine.
    """
    decisions = [(d, *_variable(d, plan.torch)) for d in plan]
    if shell == "json":
        variables = [
            {"name": names[0], "value": value, "why": d.why, "evidence": d.evidence}
            for d, names, value in decisions
            if names
        ]
        return dumps(
            "rocsolid/env/1",
            profile=plan.profile,
            platform=plan.platform,
            variables=variables,
            **({"pretended": simulated} if simulated else {}),
        )
    head = _comment(f"profile {plan.profile} for torch {plan.torch or '(none)'} on {plan.platform.label}")
    if simulated:
        head += f"\n# simulated chip: {simulated}, not this machine"
    lines = (line for d, names, value in decisions if names for line in _lines(d, names, value, shell))
    return "\n".join([head, *lines, _comment(f"{_FAST} {_MORE}" if plan.profile == "fast" else _MORE)]) + "\n"


def _variable(decision: Decision, torch: str) -> tuple[tuple[str, ...], str | None]:
    """Return the names of a setting's variable and its value, None to unset it; no name if this torch reads no variable."""
    setting = registry.find(decision.id)
    if decision.channel is Channel.PROCESS:
        former_names = setting.former_names if setting and decision.value is None else ()
        return (decision.name, *former_names), None if decision.value is None else str(decision.value)
    variable = setting.variable if setting else None
    if variable and torch and not variable.torch.holds(torch):
        return (), None
    if variable is None or (variable.any_value_enables and decision.value is False):
        return (variable.name,) if variable else (), None
    on_off = {True: variable.on, False: variable.off}
    return (variable.name,), on_off[decision.value] if isinstance(decision.value, bool) else str(decision.value)


def _lines(decision: Decision, names: Sequence[str], value: str | None, shell: str) -> Iterator[str]:
    yield _comment(decision.why)
    for name in map(shlex.quote, names):
        if value is None:
            yield {"bash": f"unset {name}", "fish": f"set -e {name}", "docker": f"# leave {name} unset"}[shell]
        else:
            template = {"bash": "export {}={}", "fish": "set -gx {} {}", "docker": "ENV {}={}"}[shell]
            yield template.format(name, shlex.quote(value))


def _comment(text: str) -> str:
    """Return a comment; every line of it begins with `#`, whatever the text is."""
    plain = "".join(c if c.isprintable() else " " for c in text)
    wrap = textwrap.TextWrapper(_WIDTH, initial_indent="# ", subsequent_indent="# ", break_long_words=False)
    return "\n".join(wrap.wrap(plain))
