"""Code starts an NVIDIA program.

## What it does
Reports `subprocess` and `os.system` calls of `nvidia-smi` and `nvcc`, and these commands in shell scripts and Dockerfiles, unless
the code checks the vendor or handles a missing program.

## Why it matters
On a machine with AMD GPUs the program does not exist. The call raises an error, or its empty output is mistaken for "no
GPU".

## Example
    import subprocess

    memory = subprocess.check_output(["nvidia-smi", "--query-gpu=memory.total", "--format=csv"])

## Use instead
    import torch

    memory = torch.cuda.get_device_properties(0).total_memory

## When to allow it
In a script for machines with NVIDIA GPUs.
"""

import ast
from collections.abc import Iterator

from rocsolid.model.evidence import source as source_evidence
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Site, Source, SourceMatch
from rocsolid.rules.source.syntax import condition_of, enclosing_blocks, keyword, literal
from rocsolid.rules.source.vendors import match_on_rocm

RULE = Rule(
    code="SRC402",
    name="nvidia-tool-called",
    severity=Severity.WARNING,
    message="`{subject}` does not exist on machines with AMD GPUs",
    why="The call raises an error there, or returns nothing.",
    fix="Use torch.cuda.get_device_properties, mem_get_info or utilization, which work on both; or rocm-smi and hipcc on ROCm.",
    check="rocsolid lint --select {code} {file}",
    since="0.1",
    evidence=(
        source_evidence("torch 2.13 cuda/__init__.py", "utilization, temperature and the like use amdsmi on ROCm."),
    ),
)
_START_CALLS = (
    "subprocess.run",
    "subprocess.call",
    "subprocess.check_call",
    "subprocess.check_output",
    "subprocess.getoutput",
    "subprocess.getstatusoutput",
    "subprocess.Popen",
    "os.system",
    "os.popen",
)
_TOOLS = ("nvidia-smi", "nvcc")


def check(source: Source) -> Iterator[SourceMatch]:
    """Calls that start one of these tools with a literal command."""
    if not any(tool in source.text for tool in _TOOLS):
        return
    for site in source.calls_to(*_START_CALLS):
        command = site.call.args[0] if site.call.args else keyword(site.call, "args")
        tool = _started_tool(command)
        if tool and not _handles_missing_tool(site):
            yield from match_on_rocm(site, source, tool)


def _started_tool(command: ast.expr | None) -> str:
    """The NVIDIA tool that the command starts; empty if there is none."""
    first = command.elts[0] if isinstance(command, (ast.List, ast.Tuple)) and command.elts else command
    if isinstance(first, ast.JoinedStr) and first.values:
        first = first.values[0]
    text = literal(first)
    word = text.split()[0].rpartition("/")[2] if isinstance(text, str) and text.split() else ""
    return word if word in _TOOLS else ""


def _handles_missing_tool(site: Site) -> bool:
    """Whether an enclosing `try`, or an `if` with `which`, handles a missing program."""
    for block in enclosing_blocks(site):
        test = condition_of(block)
        if (block.kind == "try" and block.branch == "body") or (test is not None and "which" in ast.unparse(test)):
            return True
    return False
