"""The text for a bug report: versions, platform, packages and variables, with secrets hidden."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from rocsolid.model.environment import Environment
from rocsolid.model.probed_name import ProbedName
from rocsolid.model.redact import HIDDEN, is_secret_name, redact
from rocsolid.report.terminal import Terminal

_LONG_IDENTIFIER: Final = re.compile(
    r"\b(?=[A-Za-z0-9_\-]*[0-9])(?=[A-Za-z0-9_\-]*[A-Za-z])[A-Za-z0-9_\-]{32,}\b"  # letters and digits: perhaps a key
)


def mask_value(name: str, value: str) -> str:
    """The value of a variable; hidden if it may be a secret, and with `~` instead of the home folder."""
    return HIDDEN if is_secret_name(name) else mask_text(value)


def mask_text(text: str) -> str:
    """The text with possible secrets hidden, and with `~` instead of the home folder."""
    home = os.path.expanduser("~")  # noqa: PTH111 - Path.home() raises without a home folder
    without_home = text.replace(home, "~") if len(home) > 1 else text
    return _LONG_IDENTIFIER.sub(HIDDEN, redact(without_home))


def doctor_text(
    env: Environment,
    *,
    version: str,
    extras: Mapping[str, bool],
    crashes: tuple[Path, ...] = (),
    names: Sequence[ProbedName] = (),
    names_problem: str = "",
    terminal: Terminal | None = None,
) -> str:
    """The text for a bug report, wrapped for a terminal; `names` are the probed private torch names, if they were probed."""

    def row(title: str, text: str) -> str:
        title = f"{title:<11}"
        return terminal.wrap(text, " " * len(title), title) if terminal else (title + text).rstrip()

    torch = env.torch
    build = f"{torch.version}, HIP {torch.hip or 'none'}, CUDA {torch.cuda or 'none'}" if torch else "not installed"
    devices = "; ".join(f"{d.name} ({d.arch})" for d in env.devices) or "none found"
    platform = " · ".join(
        part
        for part in (
            env.platform.label,
            f"ROCm {env.rocm_version}" if env.rocm_version else "",
            f"CUDA {env.cuda_version}" if env.cuda_version else "",
            f"driver {env.driver}" if env.driver else "",
        )
        if part
    )
    changed = ", ".join(name for name, setting in env.settings.items() if setting.changed)
    rows = [
        ("rocsolid", version),
        ("python", env.python),
        ("system", f"{env.host.system}, {env.host.cores} cores"),
        ("torch", build),
        ("platform", platform),
        ("devices", devices),
        ("container", f"{env.container.engine} {env.container.image}".strip() if env.container else "none found"),
        ("packages", ", ".join(f"{name} {v}" for name, v in env.packages.items()) or "none that rocsolid reports"),
        ("extras", ", ".join(f"{name} {'yes' if installed else 'no'}" for name, installed in extras.items())),
        ("compiler", env.host.compiler or "none"),
        ("settings", f"changed: {changed}" if changed else "all defaults"),
        ("variables", ""),
    ]
    lines = [row(name, mask_text(value)) for name, value in rows]
    lines += [f"  {name}={mask_value(name, value)}" for name, value in env.variables.items()] or ["  none"]
    lines += [row("unknown", mask_text(text)) for text in env.unknowns]
    lines += [row("crash", str(file)) for file in crashes]
    lines += [row(title, mask_text(text)) for title, text in _private_names(names, names_problem)]
    return "\n".join(lines) + "\n"


def _private_names(names: Sequence[ProbedName], problem: str) -> Iterator[tuple[str, str]]:
    if problem:
        yield "names", problem
    if not names:
        return
    failed = [name for name in names if name.problem]
    skipped = sum(bool(name.skipped) for name in names)
    works = f"{len(names) - len(failed) - skipped} private torch names work"
    elsewhere = f", {skipped} do not apply to this torch" if skipped else ""
    yield "names", works + elsewhere + (f", {len(failed)} do not work" if failed else "")
    for name in failed:
        yield "degraded", name.without
        yield "", f"`{name.name}`: {name.problem}"
