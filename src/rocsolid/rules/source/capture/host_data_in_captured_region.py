"""A tensor is created from CPU data while a graph is captured.

## What it does
Reports `torch.tensor`, `torch.as_tensor` and `torch.from_numpy` in a capture and in functions called from it.

## Why it matters
The CPU data is read during the capture only. Torch rejects a copy from memory that is not pinned, and the capture
fails. A copy that is accepted becomes part of the graph: every replay copies from the same address, which may contain
other data by then, or repeats the first values.

## Example
    import torch

    with torch.cuda.graph(graph):
        positions = torch.tensor(lengths, device="cuda")
        out = model(x, positions)

## Use instead
    import torch

    positions = torch.tensor(lengths, device="cuda")
    with torch.cuda.graph(graph):
        out = model(x, positions)

## When to allow it
When the tensor stays on the CPU and the GPU does not use it.
"""

from collections.abc import Iterator

from rocsolid.model.evidence import measured
from rocsolid.model.finding import Rule, Severity
from rocsolid.model.source import Source, SourceMatch
from rocsolid.rules.source.captures import capture_facts, match_in_capture
from rocsolid.rules.source.syntax import argument, keyword, literal, source_text

RULE = Rule(
    code="SRC203",
    name="host-data-in-captured-region",
    severity=Severity.CRITICAL,
    message="`{subject}` copies CPU data in {where}",
    why="Torch raises an error for a copy from unpinned memory during a capture. Where torch does not check, the runtime decides. {runtime_call_and_its_behavior}. A recorded copy reads the same address in every replay, whatever is stored there by then (`rocsolid explain {runtime_call}`).",
    fix="Create the tensor before the capture, and write new values into it with copy_() before each replay.",
    check="rocsolid lint --select {code} {file}",
    since="0.1",
    evidence=(
        measured(
            "capture-facts-on-h200#capture-first-compile",
            "A copy from memory that is not pinned is rejected in a capture.",
        ),
    ),
)


def check(source: Source) -> Iterator[SourceMatch]:
    """Tensors created from lists, numbers or arrays, except those that stay on the CPU."""
    for site in source.calls_to("torch.tensor", "torch.as_tensor", "torch.from_numpy", "torch.cuda.FloatTensor"):
        device = keyword(site.call, "device")
        on_host = literal(device) == "cpu" or (device is None and site.name != "torch.from_numpy")
        if not on_host and argument(site.call, 0, "data") is not None:
            yield from match_in_capture(site, source, source_text(site.node), **capture_facts("memcpy-from-pageable"))
