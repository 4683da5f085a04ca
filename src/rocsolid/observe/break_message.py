"""Takes apart what torch says about a graph break."""

import json
import linecache
import re
from dataclasses import dataclass
from functools import cache
from typing import Final

from rocsolid.torchapi.dynamo.break_registry import registry_file

_URL: Final = re.compile(r"/gb(\d{4})\.html", re.IGNORECASE)
_LABEL: Final = re.compile(r"^\s*(Explanation|Hint|Developer debug context|User code context):\s?(.*)$")


@dataclass(frozen=True, kw_only=True)
class Said:
    """Torch's message, part by part."""

    explanation: str = ""
    hints: tuple[str, ...] = ()
    context: str = ""
    exception: str = ""


def parts_of(message: str) -> Said:
    """Explanation, hints and context; of nested messages the last, which is the one that broke the graph."""
    parts: dict[str, list[str]] = {
        "Explanation": [],
        "Hint": [],
        "Developer debug context": [],
        "User code context": [],
    }
    label = ""
    rest: list[str] = []
    for line in message.splitlines():
        if found := _LABEL.match(line):
            label = found[1]
            parts[label].append(found[2].strip())
        elif not line.strip() or "For more details about this graph break" in line:
            label = ""
        elif label:
            parts[label][-1] += f" {line.strip()}"
        else:
            rest.append(line.strip())
    return Said(
        explanation=parts["Explanation"][-1] if parts["Explanation"] else "",
        hints=tuple(parts["Hint"]),
        context=parts["Developer debug context"][-1] if parts["Developer debug context"] else "",
        exception="\n".join(rest),
    )


@cache
def _ids() -> dict[str, str]:
    """Torch's own ids by its own words."""
    file = registry_file()
    if file is None:
        return {}
    known: dict[str, str] = {}
    for number, entries in json.loads(file.read_text(encoding="utf-8")).items():
        for entry in entries:
            known.setdefault(str(entry.get("Gb_type")), number)
    return known


def break_id(kind: str, message: str = "") -> str:
    """Torch's id for a break, such as GB0170; nothing where torch has none."""
    if known := _ids().get(kind):
        return known
    found = _URL.findall(message)
    return f"GB{found[-1]}" if found else ""


def code_line(place: str) -> str:
    """The text of a line in a file, or nothing."""
    file, _, number = place.rpartition(":")
    return linecache.getline(file, int(number)).strip() if number.isdigit() else ""
