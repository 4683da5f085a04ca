"""The flame graph on the HTML page of a trace: Python stacks by host time, or by the device time of their work."""

from collections.abc import Iterable
from typing import Final

from rocsolid.model.trace_view import FlameGraph
from rocsolid.report.html import Html, join, json_data, tag
from rocsolid.report.html_page import legend
from rocsolid.report.sortable_table import counts, sortable, times

_KEYS_HELP: Final = (
    ("↑", " caller, "),
    ("↓", " heaviest callee, "),
    ("←", " "),
    ("→", " previous and next, "),
    ("Enter", " or click zoom in, "),
    ("Esc", " or "),
    ("0", " show all, "),
    ("/", " search"),
)
_KINDS: Final = (("code", "Python"), ("module", "nn.Module"), ("torch", "torch"), ("builtin", "built-in"))


def flame_html(flame: FlameGraph) -> Html:
    """Return the flame graph with its controls, and a table of Python functions."""
    data = {
        "names": flame.names,
        "kinds": [_kind(name) for name in flame.names],
        "name": flame.name_index,
        "parent": flame.parent,
        "host": flame.host_ns,
        "device": flame.device_ns,
        "count": flame.count,
    }
    weights = tag(
        "select",
        tag("option", "host time", value="host"),
        tag("option", "device time launched", value="device", disabled=not any(flame.device_ns)),
        id="flame-weight",
    )
    label = "flame graph of Python stacks; arrow keys move, Enter zooms in, Escape shows all"
    notes = [
        f"{flame.dropped_calls:,} of the shortest calls are not drawn." if flame.dropped_calls else "",
        f"{flame.dropped_nodes:,} stacks with the least time are not drawn." if flame.dropped_nodes else "",
    ]
    rows = [(r.name, *counts(r.count), *times(r.self_ns, r.total_ns, r.device_ns)) for r in flame.rows]
    headings = ["function", "calls", "self time", "total time", "device time"]
    return join(
        tag("h3", "Flame graph of Python stacks"),
        tag(
            "div",
            tag("label", "width ", weights),
            tag("input", type="search", id="flame-search", placeholder="search frames", aria_label="search frames"),
            tag("output", id="flame-found", class_="faint"),
            tag("button", "show all stacks", type="button", id="flame-all"),
            class_="tools",
        ),
        tag(
            "div",
            tag("canvas", tabindex="0", role="application", aria_label=label),
            tag("div", class_="tip", hidden=True),
            class_="timeline flame",
            id="flame",
        ),
        tag("pre", class_="detail", id="flame-detail", aria_live="polite"),
        legend((label, f"var(--f-{kind})") for kind, label in _KINDS),
        keys_help(_KEYS_HELP),
        tag("p", " ".join(filter(None, notes)), class_="faint"),
        json_data("flame-about", data),
        tag("h3", "Python functions"),
        sortable("functions", headings, rows),
    )


def keys_help(keys: Iterable[tuple[str, str]]) -> Html:
    """Return what each key does."""
    return tag("p", [[tag("kbd", key), text] for key, text in keys], class_="faint keys")


def _kind(name: str) -> int:
    """Return the kind of a frame, an index into `_KINDS`. It decides the colour."""
    if name.startswith("nn.Module"):
        return 1
    if name.startswith("torch/") or "/torch/" in name:
        return 2
    return 3 if name.startswith("<built-in") else 0
