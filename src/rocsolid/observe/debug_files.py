"""Reads what TORCH_COMPILE_DEBUG=1 wrote in a run that is over: graphs and programs, but no times."""

import re
from datetime import datetime, timezone
from pathlib import Path
from typing import Final

from rocsolid.errors import InputError
from rocsolid.model.compile_event import Began, Coded, Event, Lowered, Named, Traced
from rocsolid.model.compile_log import CompileLog
from rocsolid.observe.build_log import assemble
from rocsolid.observe.graph_text import read_graph

_FOLDER: Final = re.compile(r"model__(\d+)_(forward|backward|inference)_(\d+)\.(\d+)")


def read_debug(path: Path) -> CompileLog:
    """The log of a folder that torch wrote, whichever level of it is named; raises InputError when there is no graph in it."""
    if not path.is_dir():
        msg = f"{path} is not a folder; TORCH_COMPILE_DEBUG=1 writes one called torch_compile_debug"
        raise InputError(msg)
    found = sorted(
        (
            (file.parent, match)
            for file in path.rglob("output_code.py")
            if (match := _FOLDER.fullmatch(file.parent.name))
        ),
        key=lambda item: (str(item[0].parent), int(item[1][4])),
    )
    if not found:
        msg = f"{path} holds no graph: no model__*/output_code.py below it"
        raise InputError(msg)
    events: list[Event] = []
    units: dict[str, int] = {}
    for folder, match in found:
        unit = units.setdefault(f"{folder.parent}/{match[1]}", len(units) + 1)
        events += _events(unit, folder, match)
    written = datetime.fromtimestamp(found[0][0].stat().st_mtime, timezone.utc).isoformat(timespec="seconds")
    return assemble(events, started_s=0.0, ended_s=0.0, started_at=written, torch="", source="debug")


def _events(unit: int, folder: Path, match: re.Match[str]) -> list[Event]:
    backward = match[2] == "backward"
    graph = read_graph(_text(folder / "fx_graph_transformed.py"))
    before = _text(folder / "ir_pre_fusion.txt")
    events: list[Event] = [Named(unit=unit, compile_id=match[1])]
    if not backward:
        events.append(
            Began(
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
            Traced(
                unit=unit, nodes=traced.nodes, inputs=traced.inputs, operators=traced.operators, places=traced.places
            )
        )
    events.append(Lowered(unit=unit, backward=backward, nodes=graph.nodes, operators=graph.operators))
    events.append(
        Coded(
            unit=unit,
            backward=backward,
            source=_text(folder / "output_code.py"),
            nodes_before_fusion=len(re.findall(r"^op\d+: ", before, re.MULTILINE)),
        )
    )
    return events


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
