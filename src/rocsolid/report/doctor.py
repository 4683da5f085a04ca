"""What to attach to a report of a bug: versions and surroundings as text, with nothing secret in it."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from rocsolid.model.environment import Environment

MASK: Final = "(masked)"
_SECRET_NAMES: Final = re.compile(
    r"TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|COOKIE|SESSION|PRIVATE|AUTH|(^|_)(API|KEY|PAT|PWD)($|_)|APIKEY|ACCESS_KEY",
    re.IGNORECASE,
)
_SECRET_VALUES: Final = re.compile(
    r"\b(hf_|sk-|ghp_|gho_|ghs_|github_pat_|glpat-|xox[abp]-|AKIA|ASIA|eyJ)[\w.\-]{8,}"  # known beginnings of tokens
    r"|(?<=://)[^/@\s]+@"  # user and password in an address
    r"|\b(?=[A-Za-z0-9_\-]*[0-9])(?=[A-Za-z0-9_\-]*[A-Za-z])[A-Za-z0-9_\-]{32,}\b"  # long words of letters and digits
)


def masked(name: str, value: str) -> str:
    """A variable's value, or a mask where it looks like a secret; the home folder becomes `~`."""
    if _SECRET_NAMES.search(name):
        return MASK
    return masked_text(value)


def masked_text(text: str) -> str:
    """Any text without what looks like a secret, and without the name of the home folder."""
    home = os.path.expanduser("~")  # noqa: PTH111 - must not raise where there is no home
    shown = text.replace(home, "~") if len(home) > 1 else text
    return _SECRET_VALUES.sub(MASK, shown)


def doctor_text(env: Environment, *, version: str, extras: Mapping[str, bool], crashes: tuple[Path, ...] = ()) -> str:
    """A page for a bug report."""
    torch = env.torch
    build = f"{torch.version}, HIP {torch.hip or 'none'}, CUDA {torch.cuda or 'none'}" if torch else "not installed"
    devices = "; ".join(f"{d.name} ({d.arch})" for d in env.devices) or "none seen"
    stack = " · ".join(
        part
        for part in (
            env.platform.label,
            f"ROCm {env.rocm_version}" if env.rocm_version else "",
            f"CUDA {env.cuda_version}" if env.cuda_version else "",
            f"driver {env.driver}" if env.driver else "",
        )
        if part
    )
    rows = [
        ("rocsolid", version),
        ("python", env.python),
        ("system", f"{env.host.system}, {env.host.cores} cores"),
        ("torch", build),
        ("platform", stack),
        ("devices", devices),
        ("container", f"{env.container.engine} {env.container.image}".strip() if env.container else "none seen"),
        ("packages", ", ".join(f"{name} {v}" for name, v in env.packages.items()) or "none of those we know"),
        ("extras", ", ".join(f"{name} {'yes' if there else 'no'}" for name, there in extras.items())),
        ("compiler", env.host.compiler or "none"),
        ("settings", ", ".join(n for n, seen in env.settings.items() if seen.moved) or "none moved"),
        ("variables", ""),
    ]
    lines = [f"{name:<11}{masked_text(value)}".rstrip() for name, value in rows]
    lines += [f"  {name}={masked(name, value)}" for name, value in env.variables.items()] or ["  none that matter"]
    lines += [f"{'not known':<11}{masked_text(gap)}" for gap in env.gaps]
    lines += [f"{'crash':<11}{file}" for file in crashes]
    return "\n".join(lines) + "\n"
