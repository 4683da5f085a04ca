"""Protects a process right before it imports torch: sets variables, activates the guard, and reports the changes at exit."""

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
from rocsolid.model.redact import redact, redact_all
from rocsolid.model.setting import Channel
from rocsolid.runtime.guard import Guard


@dataclass(frozen=True, kw_only=True)
class Protection:
    """The changes made to this process."""

    plan: Plan
    guard: Guard
    variables: tuple[Intervention, ...]
    pretended: str = ""  # the chip and release of `--pretend`

    @property
    def changes(self) -> list[Intervention]:
        """All changes: first the environment variables, then the values that the guard refused."""
        return [*self.variables, *self.guard.interventions]

    def report_changes(self, report: str = "") -> None:
        """Append a line of JSON to the report file; without a file, write a summary to stderr if anything was changed."""
        if report:
            line = {
                "schema": "rocsolid/run/1",
                "pid": os.getpid(),
                "program": sys.argv[0],
                "profile": self.plan.profile,
                "platform": self.plan.platform.value,
                **({"pretended": self.pretended} if self.pretended else {}),
                "changes": redact_all(encode(self.changes)),
            }
            try:
                with Path(report).open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")  # one write, so that the lines of several processes do not mix
            except OSError as error:
                sys.stderr.write(f"rocsolid: cannot write the report {report}: {error.strerror}\n")
        elif self.changes:
            count = f"{len(self.changes)} change{'s' if len(self.changes) > 1 else ''}"
            chip = f", with --pretend {self.pretended}" if self.pretended else ""
            lines = [f"rocsolid: {count} by profile {self.plan.profile}{chip}:", *map(str, self.changes)]
            sys.stderr.write(redact("\n".join(lines)).replace("\n", "\n  ") + "\n")


def set_variables(plan: Plan, environ: MutableMapping[str, str]) -> Iterator[Intervention]:
    """Set the plan's environment variables, and yield each change.

    On ROCm variables are also removed: those that the plan lists as unset, and those that would change a setting of the plan. On other platforms existing variables are left alone, and only missing ones are set.
    """
    may_remove = plan.platform is Platform.ROCM
    for decision in plan:
        setting = registry.find(decision.id)
        if decision.channel is Channel.PROCESS:
            for former_name in setting.former_names if setting and may_remove else ():
                yield from _change(environ, former_name, None, decision.why)
            value = None if decision.value is None else str(decision.value)
            if may_remove or (value is not None and decision.name not in environ):
                yield from _change(environ, decision.name, value, decision.why)
        elif may_remove and setting and setting.variable and setting.variable.name in environ:
            # In protected processes the guard enforces the setting; in other child processes only the variable has an effect.
            yield from _change(environ, setting.variable.name, None, decision.why)


def _change(environ: MutableMapping[str, str], name: str, value: str | None, why: str) -> Iterator[Intervention]:
    previous = environ.get(name)
    if previous == value:
        return
    if value is None:
        del environ[name]
    else:
        environ[name] = value
    yield Intervention(
        setting=f"process.{name}", requested=previous, used=value, why=why, how="variable", location="the environment"
    )
