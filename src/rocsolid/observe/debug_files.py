"""Reads the folder that TORCH_COMPILE_DEBUG=1 writes: graphs and generated code, but no times."""

import re
from datetime import datetime, timezone
from pathlib import Path
from typing import Final

from rocsolid.errors import InputError
from rocsolid.model.compile_event import (
    CodeGenerated,
    CompileEvent,
    CompileIdAssigned,
    CompileStarted,
    GraphTraced,
    LoweringStarted,
)
from rocsolid.model.compile_log import CompileLog
from rocsolid.observe.build_log import build_log
from rocsolid.observe.graph_text import read_graph

_GRAPH_FOLDER: Final = re.compile(r"model__(\d+)_(forward|backward|inference)_(\d+)\.(\d+)")


def read_debug(path: Path) -> CompileLog:
    """Return the log of a torch_compile_debug folder, or of a folder in it or above it.

    Raises InputError if the folder contains no compiled graph.
    """
    if not path.is_dir():
        msg = f"{path} is not a folder; pass the folder torch_compile_debug that TORCH_COMPILE_DEBUG=1 writes"
        raise InputError(msg)
    graph_folders = sorted(
        (
            (file.parent, match)
            for file in path.rglob("output_code.py")
            if (match := _GRAPH_FOLDER.fullmatch(file.parent.name))
        ),
        key=lambda item: (str(item[0].parent), int(item[1][4])),
    )
    if not graph_folders:
        msg = f"{path} contains no compiled graph (no model__*/output_code.py); run with TORCH_COMPILE_DEBUG=1 and an empty Inductor cache"
        raise InputError(msg)
    events: list[CompileEvent] = []
    units: dict[str, int] = {}
    for folder, match in graph_folders:
        unit = units.setdefault(f"{folder.parent}/{match[1]}", len(units) + 1)
        events += _events(unit, folder, match)
    written = datetime.fromtimestamp(graph_folders[0][0].stat().st_mtime, timezone.utc).isoformat(timespec="seconds")
    return build_log(events, started_s=0.0, ended_s=0.0, started_at=written, torch="", source="debug")


def _events(unit: int, folder: Path, match: re.Match[str]) -> list[CompileEvent]:
    backward = match[2] == "backward"
    graph = read_graph(_text(folder / "fx_graph_transformed.py"))
    nodes_before_fusion = _text(folder / "ir_pre_fusion.txt")
    events: list[CompileEvent] = [CompileIdAssigned(unit=unit, compile_id=match[1])]
    if not backward:
        events.append(
            CompileStarted(
                unit=unit,
                at_s=0.0,
                thread="",
                function=f"model__{match[1]}",
                file=str(folder / "output_code.py"),
                line=1,
            )
        )
        traced = read_graph(_text(folder / "fx_graph_readable.py"))
        events.append(
            GraphTraced(
                unit=unit,
                nodes=traced.nodes,
                inputs=traced.inputs,
                operators=traced.operators,
                locations=traced.locations,
            )
        )
    events.append(LoweringStarted(unit=unit, backward=backward, nodes=graph.nodes, operators=graph.operators))
    events.append(
        CodeGenerated(
            unit=unit,
            backward=backward,
            source=_text(folder / "output_code.py"),
            nodes_before_fusion=len(re.findall(r"^op\d+: ", nodes_before_fusion, re.MULTILINE)),
        )
    )
    return events


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
