"""An environment variable is set after the import that reads it.

## What it does
Reports `os.environ[...] = ...` at module level if an earlier import has already read the variable: `import torch` for
variables that torch reads while it is imported, an import of torch's compiler for those that its config modules read.

## Why it matters
The variable is read once. Setting it later has no effect in this process, and there is no error.

## Example
    import os

    import torch
    import torch._inductor.config

    os.environ["TORCHINDUCTOR_MAX_AUTOTUNE"] = "0"

## Use instead
    import os

    os.environ["TORCHINDUCTOR_MAX_AUTOTUNE"] = "0"

    import torch
    import torch._inductor.config

## When to allow it
When the variable is meant for child processes.
"""

import ast
from collections.abc import Iterator

from rocsolid.catalog.registry import find
from rocsolid.catalog.variables import is_read
from rocsolid.model.evidence import measured
from rocsolid.model.evidence import source as source_evidence
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.setting import Owner
from rocsolid.model.source import Site, Source, SourceMatch
from rocsolid.rules.source.settings import variable_assignments
from rocsolid.rules.source.syntax import conditional_blocks, match_at

RULE = Rule(
    code="SRC108",
    name="variable-set-too-late",
    severity=Severity.WARNING,
    message="{subject} is set too late: `import {imported}` (line {import_line}) already read it",
    why="The variable is read once, during that import. Setting it now has no effect in this process.",
    fix="Set it before that import, or before the process starts: `rocsolid env` prints the commands.",
    check="rocsolid lint --select {code} {file}",
    since="0.1",
    evidence=(
        measured(
            "compiler-facts-torch-2.13-cpu#config-import-time",
            "A variable set after the config module was loaded changed nothing.",
        ),
        source_evidence("torch 2.13, the variables that are read at import", "Each is read once."),
    ),
)
# Read by `import torch` itself, or by the thread libraries that it loads (observed with torch 2.13).
_READ_BY_IMPORT_TORCH = frozenset(
    {
        "TORCH_LOGS",
        "TORCH_LOGS_OUT",
        "TORCH_LOGS_FORMAT",
        "TORCH_TRACE",
        "TORCH_COMPILE_DEBUG",
        "TORCHINDUCTOR_FORCE_DISABLE_CACHES",
        "TORCH_COMPILE_FORCE_DISABLE_CACHES",
        "TORCH_CUDA_SANITIZER",
        "TORCH_DEVICE_BACKEND_AUTOLOAD",
        "TORCH_CUDAGRAPH_GC",
        "KINETO_USE_DAEMON",
        "PYTORCH_JIT",
    }
)


def check(source: Source) -> Iterator[SourceMatch]:
    """Variables set at module level, after an import that has read them."""
    if "environ" not in source.text:
        return
    for variable in variable_assignments(source):
        if variable.site.scope.kind != "module" or any(
            isinstance(b.node, ast.If) for b in conditional_blocks(variable.site.block)
        ):
            continue
        earlier_import = next(
            (i for i in source.imports if i.line < variable.site.line and _has_read(i, variable.name)), None
        )
        if earlier_import and earlier_import.scope.kind == "module":
            yield match_at(variable.site, variable.name, imported=earlier_import.name, import_line=earlier_import.line)


def _has_read(imported: Site, variable: str) -> bool:
    """Whether this import reads the variable."""
    if imported.name == "torch" or imported.name.startswith("torch."):
        if variable in _READ_BY_IMPORT_TORCH:
            return True
        setting = find(variable)
        owner = setting.owner if setting else None
        if owner is Owner.INDUCTOR or (
            variable.startswith("TORCHINDUCTOR_") and is_read(variable) and owner is not Owner.PROCESS
        ):
            return imported.name.startswith("torch._inductor")
        if owner is Owner.DYNAMO:
            return imported.name.startswith(("torch._dynamo", "torch._inductor"))
    return False
