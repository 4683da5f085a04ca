"""A study as one self-contained HTML page: what won, by how much and how surely, what each value is worth, what was rejected."""

from html import escape

from rocsolid.model.codec import encode
from rocsolid.model.plan_toml import to_toml
from rocsolid.model.study import Effect, Finalist, Study, TrialRecord
from rocsolid.model.timing import Verdict
from rocsolid.report.html_page import page, table
from rocsolid.report.plot import Bar, intervals
from rocsolid.report.study_text import rejection

_COLOURS = {Verdict.FASTER: "good", Verdict.SLOWER: "critical", Verdict.SAME: "info", Verdict.UNSURE: "warning"}
_LONGEST = 8000


def study_html(study: Study) -> str:
    """The whole page."""
    parts = [
        _verdict(study),
        "<h2>Final race</h2>",
        _race_plot(study),
        _race_table(study),
        "<h2>What each value is worth</h2>",
        _effects(study.effects),
        *_trade_offs(study),
        "<h2>All trials</h2>",
        _trials(study),
        "<h2>Where the time went</h2>",
        _time(study),
        "<h2>Rejected</h2>",
        "".join(_rejected(t) for t in study.rejected) or '<p class="good">Every variant could be measured.</p>',
        "<h2>The plan</h2>",
        '<p>Save it as <code>plan.toml</code>; <code>rs.optimize(model, x, plan="plan.toml")</code> uses it.</p>',
        f'<pre id="plan" tabindex="0">{escape(to_toml(encode(study.best)))}</pre>',
        "<h2>Where</h2>",
        _where(study),
    ]
    return page(f"Tuned: {study.workload.rpartition('/')[2]}", _subtitle(study), "\n".join(parts))


def _subtitle(study: Study) -> str:
    where = study.where
    return f"{where.get('device', '?')} · {where.get('arch', '?')} · torch {where.get('torch', '?')} · {len(study.trials)} trial{'s' * (len(study.trials) != 1)} in {study.spent_s:.0f} s"


def _verdict(study: Study) -> str:
    colour = _COLOURS[study.verdict]
    return (
        f'<ul class="counts"><li><b class="{colour}">{study.verdict.name}</b><code>{escape(study.winner)}</code></li>'
        f"<li><b>{study.noise:.1%}</b>noise between equal processes</li>"
        f"<li><b>{len(study.rejected)}</b>rejected</li></ul><p>{escape(study.why[:1].upper() + study.why[1:])}. {escape(study.ended.capitalize())}.</p>"
    )


def _race_plot(study: Study) -> str:
    bars = [
        Bar(
            label=finalist.name,
            low=finalist.against_start.low,
            middle=finalist.against_start.speedup,
            high=finalist.against_start.high,
            colour=_COLOURS[finalist.against_start.verdict],
        )
        for finalist in study.finalists
        if finalist.against_start
    ]
    title = "Times as fast as the start, with 95 % intervals; the band is the noise between equal processes"
    return intervals(title, bars, centre=1.0, band=study.noise) if bars else "<p>The start had no rival.</p>"


def _race_table(study: Study) -> str:
    headings = ["variant", "time", "beside the start", "pays after", "measured in", "remark"]
    return table(
        "finals", headings, [("highlighted" if f.name == study.winner else "", _race_row(f)) for f in study.finalists]
    )


def _race_row(finalist: Finalist) -> list[str]:
    calls = finalist.break_even_calls
    cells = [
        str(finalist.timing or ""),
        str(finalist.against_start or ""),
        "" if calls is None else f"{calls} calls" if calls else "at once",
        f"{finalist.rounds} rounds, {finalist.processes} process{'es' * (finalist.processes != 1)}",
        finalist.out,
    ]
    return [f"<code>{escape(finalist.name)}</code>", *(escape(cell) for cell in cells)]


def _effects(effects: tuple[Effect, ...]) -> str:
    if not effects:
        return "<p>No two trials differ in one value alone.</p>"
    bars = [
        Bar(
            label=f"{effect.id}={effect.value}",
            low=min(1.0, effect.speedup),
            middle=effect.speedup,
            high=max(1.0, effect.speedup),
            colour="good" if effect.speedup >= 1 else "critical",
        )
        for effect in effects
    ]
    title = "Times as fast with the value as without it, all else alike; from single trials, so small ones are noise"
    return intervals(title, bars, centre=1.0)


def _trade_offs(study: Study) -> list[str]:
    """What time costs in set-up and memory; nothing when one trial is best at all of them."""
    front = study.trade_offs
    if len(front) <= 1:
        return []
    rows = [
        ("", [f"<code>{escape(t.name)}</code>", f"{t.timing.median_ms:.4g}", f"{t.setup_s:.1f}", _device_mb(t)])
        for t in front
        if t.timing
    ]
    said = "<p>No other trial is as good as these in time, set-up and device memory together.</p>"
    return ["<h2>What speed costs</h2>", said, table("trade", ["variant", "ms", "set-up, s", "device, MB"], rows)]


def _device_mb(trial: TrialRecord) -> str:
    return f"{trial.peak_bytes / 2**20:.0f}" if trial.peak_bytes else ""


def _trials(study: Study) -> str:
    rows = []
    for trial in study.trials:
        timing = trial.timing
        cells = [
            str(trial.number),
            f"<code>{escape(trial.name)}</code>",
            f"{timing.median_ms:.4g}" if timing else "",
            f"{timing.low_ms:.4g} to {timing.high_ms:.4g}" if timing else "",
            f"{trial.setup_s:.1f}",
            _device_mb(trial),
            "" if trial.error is None else f"{trial.error:.1e}",
            escape(f"{trial.kind}; {trial.reason}" if trial.again else trial.kind),
        ]
        rows.append(("" if timing else "faint", cells))
    headings = ["number", "variant", "ms", "interval, ms", "set-up, s", "device, MB", "error", "ended"]
    return table("trials", headings, rows)


def _time(study: Study) -> str:
    spent: dict[str, float] = {}
    for trial in study.trials:
        for phase, seconds in trial.phases.items():
            spent[phase] = spent.get(phase, 0.0) + seconds
    lost = sum(trial.seconds for trial in study.rejected)
    rows = [("", [escape(phase), f"{seconds:.1f}"]) for phase, seconds in spent.items()]
    rows.append(("highlighted", ["trials that were rejected", f"{lost:.1f}"]))
    return table("time", ["phase", "seconds"], rows)


def _rejected(trial: TrialRecord) -> str:
    said = [("stacks before the kill", trial.stacks), ("end of its output", trial.log_tail)]
    body = "".join(f"<h3>{label}</h3><pre>{escape(text[-_LONGEST:])}</pre>" for label, text in said if text.strip())
    return (
        f'<details class="finding is-warning"><summary>{escape(rejection(trial))}</summary>'
        f"<div><p>{trial.seconds:.1f} s; <code>{escape(trial.log)}</code></p>{body}</div></details>"
    )


def _where(study: Study) -> str:
    rows = [("workload", study.workload), ("search", study.search), ("profile", study.profile), *study.where.items()]
    rows += [(name, ", ".join(str(value) for value in values)) for name, values in study.knobs.items()]
    return "<dl>" + "".join(f"<dt>{escape(label)}</dt><dd>{escape(text)}</dd>" for label, text in rows) + "</dl>"
