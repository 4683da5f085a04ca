"""A program of NVIDIA's is started.

## What it does
Reports `subprocess` and `os.system` calls of `nvidia-smi` and `nvcc` where nothing around asks for the vendor or handles
its absence.

## Why it matters
On a machine with AMD GPUs the program is not there; the call raises, or its empty answer is taken for "no GPU".

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

from rocsolid.model.evidence import source as upstream
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Site, Source, SourceMatch
from rocsolid.rules.source.syntax import condition_of, enclosing_blocks, is_vendor_specific, keyword, literal, match_at

RULE = Rule(
    code="SRC402",
    name="nvidia-tool-called",
    severity=Severity.WARNING,
    message="{subject} is started",
    why="On a machine with AMD GPUs there is no such program.",
    fix="Ask torch (torch.cuda.get_device_properties, mem_get_info, utilization), which answers on both; or rocm-smi and hipcc on ROCm.",
    check="rocsolid probe",
    since="0.1",
    evidence=(upstream("torch 2.13 cuda/__init__.py", "utilization, temperature and the like ask amdsmi on ROCm."),),
)
_STARTS = (
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
    """Starts of the tools by a command that is written out."""
    if source.for_another_vendor:
        return
    if not any(tool in source.text for tool in _TOOLS):
        return
    for site in source.calls_to(*_STARTS):
        command = site.call.args[0] if site.call.args else keyword(site.call, "args")
        tool = _tool(command)
        if tool and not is_vendor_specific(site) and not _absence_handled(site):
            yield match_at(site, tool)


def _tool(command: ast.expr | None) -> str:
    first = command.elts[0] if isinstance(command, (ast.List, ast.Tuple)) and command.elts else command
    if isinstance(first, ast.JoinedStr) and first.values:
        first = first.values[0]
    text = literal(first)
    word = text.split()[0].rpartition("/")[2] if isinstance(text, str) and text.split() else ""
    return word if word in _TOOLS else ""


def _absence_handled(site: Site) -> bool:
    """Whether a `try` or a question for the program stands around it."""
    for block in enclosing_blocks(site):
        test = condition_of(block)
        if (block.kind == "try" and block.branch == "body") or (test is not None and "which" in ast.unparse(test)):
            return True
    return False
