"""The flame graph on the HTML page of a trace: Python stacks by host time, or by the device time of their work."""

import json
from typing import Final

from rocsolid.model.trace_view import FlameGraph
from rocsolid.report.sortable_table import counts, sortable, times

_KEYS_HELP: Final = (
    "<kbd>↑</kbd> caller, <kbd>↓</kbd> heaviest callee, <kbd>←</kbd> <kbd>→</kbd> previous and next, <kbd>Enter</kbd> or click"
    " zoom in, <kbd>Esc</kbd> or <kbd>0</kbd> show all, <kbd>/</kbd> search"
)
_KINDS: Final = (("code", "Python"), ("module", "nn.Module"), ("torch", "torch"), ("builtin", "built-in"))


def flame_html(flame: FlameGraph) -> str:
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
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")
    legend = "".join(f'<li><i style="background:var(--f-{kind})"></i>{label}</li>' for kind, label in _KINDS)
    notes = [
        f"{flame.dropped_calls:,} of the shortest calls are not drawn." if flame.dropped_calls else "",
        f"{flame.dropped_nodes:,} stacks with the least time are not drawn." if flame.dropped_nodes else "",
    ]
    rows = [(r.name, *counts(r.count), *times(r.self_ns, r.total_ns, r.device_ns)) for r in flame.rows]
    headings = ["function", "calls", "self time", "total time", "device time"]
    return f"""<h3>Flame graph of Python stacks</h3>
<div class="tools"><label>width <select id="flame-weight"><option value="host">host time</option>
<option value="device"{"" if any(flame.device_ns) else " disabled"}>device time launched</option></select></label>
<input type="search" id="flame-search" placeholder="search frames" aria-label="search frames">
<output id="flame-found" class="faint"></output><button type="button" id="flame-all">show all stacks</button></div>
<div class="timeline flame" id="flame"><canvas tabindex="0" role="application"
 aria-label="flame graph of Python stacks; arrow keys move, Enter zooms in, Escape shows all"></canvas><div class="tip" hidden></div></div>
<pre class="detail" id="flame-detail" aria-live="polite"></pre>
<ul class="legend">{legend}</ul><p class="faint keys">{_KEYS_HELP}</p><p class="faint">{" ".join(filter(None, notes))}</p>
<script type="application/json" id="flame-about">{text}</script>
<h3>Python functions</h3>{sortable("functions", headings, rows)}"""


def _kind(name: str) -> int:
    """Return the kind of a frame, an index into `_KINDS`. It decides the colour."""
    if name.startswith("nn.Module"):
        return 1
    if name.startswith("torch/") or "/torch/" in name:
        return 2
    return 3 if name.startswith("<built-in") else 0
