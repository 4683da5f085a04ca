"""The fixes of findings: shell commands, Python lines, and a file for the shell command `source`."""

import shlex
from collections.abc import Sequence

from rocsolid.model.finding import Finding
from rocsolid.torchapi.config.live import MODULES

_IMPORTS = {f"{owner}_config": f"import {module} as {owner}_config" for owner, module in MODULES.items()}


def shell_commands(findings: Sequence[Finding]) -> list[str]:
    """The `unset` and `export` commands without duplicates, each with the key of the finding that it fixes."""
    lines: dict[str, str] = {}
    for finding in findings:
        for name in finding.fix_commands.unset:
            lines.setdefault(f"unset {name}", finding.key)
        for name, value in finding.fix_commands.export.items():
            lines.setdefault(f"export {name}={shlex.quote(value)}", finding.key)
    return [f"{line:<50}  # {key}" for line, key in lines.items()]


def python_lines(findings: Sequence[Finding]) -> list[str]:
    """The Python assignments, after the imports that they need."""
    lines = dict.fromkeys(line for f in findings for line in f.fix_commands.python)
    imports = [text for name, text in _IMPORTS.items() if any(line.startswith(name) for line in lines)]
    return [*imports, *lines]


def fix_text(findings: Sequence[Finding]) -> str:
    """All fixes: shell commands, Python lines, and the fixes that a person has to do."""
    shell, python = shell_commands(findings), python_lines(findings)
    by_hand = [f for f in findings if not (f.fix_commands.unset or f.fix_commands.export or f.fix_commands.python)]
    blocks = []
    if shell:
        blocks.append("\n".join(["# run in the shell, before the program starts", *shell]))
    if python:
        blocks.append("\n".join(["# run in Python, in the thread that compiles, before the first compile", *python]))
    if by_hand:
        blocks.append("\n".join(["# do by hand", *(f"# {f.key}: {f.fix}" for f in by_hand)]))
    return ("\n\n".join(blocks) or "# nothing to fix") + "\n"


def env_file(findings: Sequence[Finding]) -> str:
    """The text of a file for the shell command `source`: the shell commands only."""
    lines = ["# written by rocsolid probe --fix; use it with: source FILE", *shell_commands(findings)]
    return "\n".join(lines) + "\n"
