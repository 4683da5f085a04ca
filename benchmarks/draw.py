"""A record of measured models as a Markdown table and as an SVG plot."""

import math
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any, Final

_OURS, _EAGER, _REDUCED, _AUTOTUNED = "rs.optimize", "eager", "reduce-overhead", "max-autotune"
_BY_HAND: Final = "graph by hand"
_COMPARED: Final = (_REDUCED, _AUTOTUNED, _BY_HAND, _EAGER)  # what rs.optimize is compared with
_STEP: Final = "rs.capture"  # for programs in which only the step is made fast
_COLOURS: Final = {
    "compile": "#8da0b8",
    "reduce-overhead": "#d99a4e",
    "max-autotune": "#b27fb5",
    "max-autotune-no-cudagraphs": "#d3b8d5",
    "make_graphed_callables": "#7fae9a",
}
_COMPILES: Final = ("compile", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
_OUR_COLOUR: Final = "#c8372d"


def table(record: Mapping[str, Any]) -> str:
    """One line for each model, and the geometric means."""
    models = record["models"]
    methods = list(dict.fromkeys(method for found in models.values() for method in found))
    extra = ["chosen"] if any(_OURS in found for found in models.values()) else []
    others = [method for method in _COMPARED if method in methods]
    heads = [*(f"{method}, ms" for method in methods), *extra, *(f"over {other}" for other in others)]
    lines = [_row("model", *heads), f"|---|{'--:|' * len(methods)}{'---|' * len(extra)}{'--:|' * len(others)}"]
    for name, found in models.items():
        cells = [_ms(found.get(method, {})) for method in methods]
        chosen = [found.get(_OURS, {}).get("chosen", "") for _ in extra]
        lines.append(_row(name, *cells, *chosen, *(_times(gain(found, other)) for other in others)))
    means = [_times(mean_gain(record, other)) for other in others]
    without = ", ".join(name for name, found in models.items() if has_wrong_results(found))
    mean = f"geometric mean without {without}" if without else "geometric mean"
    return "\n".join([*lines, _row(mean, *[""] * (len(methods) + len(extra)), *means)])


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def page(
    quiet: Mapping[str, Any],
    record: Mapping[str, Any],
    picture: str,
    autotuned: Mapping[str, Any],
    programs: Mapping[str, Any],
) -> str:
    """The results page of the documentation: few models on a quiet machine, many models, max-autotune, and whole programs."""
    left_out = [name for name, found in record["models"].items() if has_wrong_results(found)]
    over_reduced, over_eager = (_gains(record, method) for method in (_REDUCED, _EAGER))
    over_autotuned = _gains(autotuned, _AUTOTUNED)
    return f"""\
# Speed of rs.optimize on public models

## One process at a time

The figures to expect: {len(quiet["models"])} models, batch 1, {quiet["dtype"]}, no gradients, on one {quiet["device"]} with \
torch {quiet["torch"]}, {quiet["date"]}. Nothing else runs while a method is measured.

![Milliseconds per call](../assets/speed-up.svg)

{table(quiet)}

*graph by hand* is `torch.compile` in the default mode and `torch.cuda.graph`; it neither copies nor checks its inputs, `rs.optimize` does both.

{_notes(quiet)}
{_commands(quiet)}

The record: `evidence/quiet-on-h200.json`.

## Many models

The gains here are larger than on a quiet machine: up to twenty other processes were alive on the host, which slows down \
eager and `reduce-overhead` more than a single graph launch.

{len(record["models"])} models with random weights, batch 1, {record["dtype"]}, no gradients, on one {record["device"]} with \
torch {record["torch"]} and Python {record["python"]}, {record["date"]}.
Each model runs with each method in its own process. The processes of one model take turns, one call at a time, and a call is \
timed from an idle GPU until it is idle again.
Inputs are checked and copied into the graph on every call.

![Speed over eager]({picture})

In the geometric mean `rs.optimize` is {_mean(over_reduced):.2f} times as fast as `reduce-overhead` and \
{_mean(over_eager):.2f} times as fast as eager ({len(over_eager)} models); at least {min(over_reduced):.2f} times as fast as \
`reduce-overhead`.
{"".join(_left_out(name, record["models"][name]) for name in left_out)}
{table(record)}

Good to know:

{_notes(record)}\
- Set-up takes longer than it would alone, because many processes compiled at the same time.

{_commands(record)}

The record, with every round, error, set-up time and form: `evidence/models-on-h200.json`.

## Compared with max-autotune

`mode="max-autotune"` benchmarks kernels for every matrix product and convolution, which takes a long time; so it was measured \
separately, together with `rs.optimize` only ({autotuned["device"]}, torch {autotuned["torch"]}, {autotuned["date"]}).
In the geometric mean over {len(over_autotuned)} models `rs.optimize` is {_mean(over_autotuned):.2f} times as fast, and at least \
{min(over_autotuned):.2f} times.

{table(autotuned)}

Good to know:

{_notes(autotuned)}
{_commands(autotuned)}

The record: `evidence/max-autotune-on-h200.json`.

## Programs that call a step many times

A language model that generates 32 tokens with transformers' own `generate` and a static cache, an encoder that serves 40 \
requests of different lengths, and forward and backward of one batch. Only the step is compiled or captured; the whole program is timed \
({programs["device"]}, torch {programs["torch"]}, {programs["date"]}).
With `rs.capture` the step of the first program is compiled and captured, that of the second is too, with one graph for each \
bucket of 64, and that of the third is captured without compiling, forward and backward.

{table(programs)}

{_commands(programs)}

The record: `evidence/programs-on-h200.json`.
"""


def _notes(record: Mapping[str, Any]) -> str:
    return "".join(f"- {note[0].upper()}{note[1:].rstrip('.')}.\n" for note in record["notes"])


def _commands(record: Mapping[str, Any]) -> str:
    lines = "".join(f"$ {command}\n" for command in record["command"].split(" && "))
    return f"```console\n{lines}```"


def has_wrong_results(found: Mapping[str, Any]) -> bool:
    """Whether every compiled form has wrong results, so that the results of torch's own modes are wrong, too."""
    tried = found.get(_OURS, {}).get("candidates", {})
    compiled = [candidate["outcome"] for name, candidate in tried.items() if name.startswith("compiled")]
    return bool(compiled) and set(compiled) == {"wrong"}


def _left_out(name: str, found: Mapping[str, Any]) -> str:
    ours = found[_OURS]
    why = next(c["why"] for n, c in ours["candidates"].items() if n == "compiled")
    return (
        f'{name} is left out of the mean: compiled, {why}, so `rs.optimize` chose "{ours["chosen"]}", '
        f"{_times(gain(found, _EAGER))} times as fast as eager. (In this dtype it is far from float32 either way: the relative error of eager is "
        f"{found[_EAGER]['error']:.0%}, that of `reduce-overhead` {found[_REDUCED]['error']:.0%}.)\n"
    )


def gain(found: Mapping[str, Any], method: str) -> float | None:
    """How many times as fast rs.optimize is as another method; None if either was not measured."""
    ours, other = (found.get(name, {}).get("median_ms") for name in (_OURS if _OURS in found else _STEP, method))
    return other / ours if ours and other else None


def mean_gain(record: Mapping[str, Any], method: str) -> float | None:
    """The geometric mean over the models that have both, and whose compiled form has correct results."""
    gains = _gains(record, method)
    return _mean(gains) if gains else None


def _gains(record: Mapping[str, Any], method: str) -> list[float]:
    return [
        value for found in record["models"].values() if not has_wrong_results(found) and (value := gain(found, method))
    ]


def _mean(gains: list[float]) -> float:
    return math.exp(sum(map(math.log, gains)) / len(gains))


def _ms(found: Mapping[str, Any]) -> str:
    value = found.get("median_ms")
    return f"{value:.3f}" if value else ("failed" if "failed" in found else "")


def _times(value: float | None) -> str:
    return f"{value:.2f}" if value else ""


def drawn(record: Mapping[str, Any]) -> str:
    """Speed compared with eager on a logarithmic scale, a group of bars for each model."""
    models = {name: found for name, found in record["models"].items() if found.get(_EAGER, {}).get("median_ms")}
    methods = [m for m in (*_COLOURS, _OURS) if any(m in found for found in models.values())]
    bar, gap, left, top, width = 7, 12, 170, 64, 760
    group = bar * len(methods) + gap
    high = top + group * len(models) + 30
    most = max((_speed(found, m) or 1 for found in models.values() for m in methods), default=2)
    scale = (width - left - 60) / math.log2(max(2.0, most))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {high}" font-family="system-ui, sans-serif" font-size="11">',
        f'<rect width="{width}" height="{high}" fill="#fff"/>',
        f'<text x="8" y="18" font-size="14" font-weight="600">Speed over eager, {escape(record["device"])}, {escape(record["dtype"])}, batch 1</text>',
        f'<text x="8" y="34" fill="#555">torch {escape(record["torch"])}, {escape(record["date"])}; logarithmic; medians of interleaved rounds; faint: results differ from eager</text>',
        *_legend(methods),
        *_grid(left, top, high, most, scale),
    ]
    for number, (name, found) in enumerate(models.items()):
        y = top + number * group
        parts.append(f'<text x="{left - 8}" y="{y + group / 2}" text-anchor="end">{escape(name)}</text>')
        for row, method in enumerate(methods):
            speed = _speed(found, method)
            if speed:
                long = max(1.0, math.log2(speed) * scale)
                colour = _COLOURS.get(method, _OUR_COLOUR)
                wrong = has_wrong_results(found) and method in _COMPILES
                title = f"{name}, {method}: {speed:.2f} times eager, {found[method]['median_ms']} ms"
                title += ", wrong results" if wrong else ""
                faint = ' fill-opacity="0.3"' if wrong else ""
                parts.append(
                    f'<rect x="{left}" y="{y + row * bar}" width="{long:.1f}" height="{bar - 1}" fill="{colour}"{faint}>'
                    f"<title>{escape(title)}</title></rect>"
                )
                if method == _OURS:
                    parts.append(
                        f'<text x="{left + long + 4:.1f}" y="{y + row * bar + 6}" font-size="9">{speed:.1f}</text>'
                    )
    return "\n".join([*parts, "</svg>"]) + "\n"


def _speed(found: Mapping[str, Any], method: str) -> float | None:
    eager, other = (found.get(name, {}).get("median_ms") for name in (_EAGER, method))
    return eager / other if eager and other else None


def _legend(methods: list[str]) -> Iterator[str]:
    x = 8
    for method in methods:
        yield f'<rect x="{x}" y="44" width="10" height="10" fill="{_COLOURS.get(method, _OUR_COLOUR)}"/>'
        yield f'<text x="{x + 14}" y="53">{escape(method)}</text>'
        x += 30 + 6 * len(method)


def _grid(left: int, top: int, high: int, most: float, scale: float) -> Iterator[str]:
    for power in range(int(math.log2(max(2.0, most))) + 1):
        x = left + power * scale
        yield f'<line x1="{x:.1f}" y1="{top - 4}" x2="{x:.1f}" y2="{high - 20}" stroke="#ddd"/>'
        yield f'<text x="{x:.1f}" y="{high - 8}" text-anchor="middle" fill="#555">{2**power}</text>'
