"""What is done to a process right before it imports torch: variables, then the guard, and a word at the end."""

import json
import os
import sys
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass
from pathlib import Path

from rocsolid.catalog import registry
from rocsolid.model.codec import encode
from rocsolid.model.intervention import Intervention
from rocsolid.model.plan import Plan
from rocsolid.model.platform import Platform
from rocsolid.model.setting import Channel
from rocsolid.runtime.guard import Guard


@dataclass(frozen=True, kw_only=True)
class Protection:
    """What was done to this process."""

    plan: Plan
    guard: Guard
    variables: tuple[Intervention, ...]
    pretended: str = ""  # chip and release that it was told to pretend

    @property
    def changes(self) -> list[Intervention]:
        """Variables first, then what the guard refused."""
        return [*self.variables, *self.guard.interventions]

    def tell(self, report: str = "") -> None:
        """A summary on stderr when anything was changed, or a line of JSON in the report file in any case."""
        if report:
            line = {
                "schema": "rocsolid/run/1",
                "pid": os.getpid(),
                "program": sys.argv[0],
                "profile": self.plan.profile,
                "platform": self.plan.platform.value,
                **({"pretended": self.pretended} if self.pretended else {}),
                "changes": encode(self.changes),
            }
            with Path(report).open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")  # one write, so that processes do not mix their lines
        elif self.changes:
            count = f"{len(self.changes)} change{'s' if len(self.changes) > 1 else ''}"
            where = f", pretending {self.pretended}" if self.pretended else ""
            lines = [
                f"rocsolid: {count} under the profile {self.plan.profile}{where}:",
                *(f"  {c}" for c in self.changes),
            ]
            sys.stderr.write("\n".join(lines) + "\n")


def set_variables(plan: Plan, environ: MutableMapping[str, str]) -> Iterator[Intervention]:
    """Bring the environment to what the plan says, and tell each change.

    On ROCm the environment is cleaned too: variables that the plan wants unset, and those that move a setting away from what the
    plan has chosen. Elsewhere nobody's variable is touched, and only what is missing is set.
    """
    cleans = plan.platform is Platform.ROCM
    for decision in plan:
        setting = registry.find(decision.id)
        if decision.channel is Channel.PROCESS:
            for former in setting.former_names if setting and cleans else ():
                yield from _change(environ, former, None, decision.why)
            value = None if decision.value is None else str(decision.value)
            if cleans or (value is not None and decision.name not in environ):
                yield from _change(environ, decision.name, value, decision.why)
        elif cleans and setting and setting.variable and setting.variable.name in environ:
            # The setting itself is taken care of by the guard; children that are no Python of ours see the variable only.
            yield from _change(environ, setting.variable.name, None, decision.why)


def _change(environ: MutableMapping[str, str], name: str, value: str | None, why: str) -> Iterator[Intervention]:
    before = environ.get(name)
    if before == value:
        return
    if value is None:
        del environ[name]
    else:
        environ[name] = value
    yield Intervention(
        setting=f"process.{name}", asked=before, got=value, why=why, how="variable", place="the environment"
    )
