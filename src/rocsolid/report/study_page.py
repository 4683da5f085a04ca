"""A study as one self-contained HTML page: the best variant, the final comparison, the effect of each value, the rejected variants."""

from html import escape

from rocsolid.model.codec import encode
from rocsolid.model.plan_toml import to_toml
from rocsolid.model.study import Effect, Finalist, Study, TrialRecord
from rocsolid.model.timing import Verdict
from rocsolid.report.html_page import page, table
from rocsolid.report.plot import Bar, intervals
from rocsolid.report.study_text import rejection

_COLOURS = {Verdict.FASTER: "good", Verdict.SLOWER: "critical", Verdict.SAME: "info", Verdict.UNSURE: "warning"}
_MAX_CHARS = 8000  # of the stacks and of the output


def study_html(study: Study) -> str:
    """Return the whole page."""
    parts = [
        _verdict(study),
        "<h2>Final comparison</h2>",
        _race_plot(study),
        _race_table(study),
        "<h2>Effect of each value</h2>",
        _effects(study.effects),
        *_trade_offs(study),
        "<h2>All trials</h2>",
        _trials(study),
        "<h2>Time per phase</h2>",
        _time(study),
        "<h2>Rejected</h2>",
        "".join(_rejected(t) for t in study.rejected) or '<p class="good">Every variant could be measured.</p>',
        "<h2>Plan</h2>",
        '<p>Save it as <code>plan.toml</code>; <code>rs.optimize(model, x, plan="plan.toml")</code> uses it.</p>',
        f'<pre id="plan" tabindex="0">{escape(to_toml(encode(study.best)))}</pre>',
        "<h2>Machine and search space</h2>",
        _machine(study),
    ]
    return page(f"Tuned: {study.workload.rpartition('/')[2]}", _subtitle(study), "\n".join(parts))


def _subtitle(study: Study) -> str:
    device, arch, torch = (study.machine.get(name, "?") for name in ("device", "arch", "torch"))
    trials = f"{len(study.trials)} trial{'s' * (len(study.trials) != 1)}"
    return f"{device} · {arch} · torch {torch} · {trials} in {study.elapsed_s:.0f} s"


def _verdict(study: Study) -> str:
    colour = _COLOURS[study.verdict]
    return (
        f'<ul class="counts"><li><b class="{colour}">{study.verdict.name}</b><code>{escape(study.winner)}</code></li>'
        f"<li><b>{study.noise:.1%}</b>difference between identical processes</li>"
        f"<li><b>{len(study.rejected)}</b>rejected</li></ul><p>{escape(study.reason[:1].upper() + study.reason[1:])}. {escape(study.stop_reason.capitalize())}.</p>"
    )


def _race_plot(study: Study) -> str:
    bars = [
        Bar(
            label=finalist.name,
            low=finalist.against_baseline.low,
            middle=finalist.against_baseline.speedup,
            high=finalist.against_baseline.high,
            colour=_COLOURS[finalist.against_baseline.verdict],
        )
        for finalist in study.finalists
        if finalist.against_baseline
    ]
    title = "Speed compared with the baseline (1 is equal), with 95 % intervals; the band shows how much identical processes differ"
    return intervals(title, bars, centre=1.0, band=study.noise) if bars else "<p>Only the baseline was measured.</p>"


def _race_table(study: Study) -> str:
    headings = [
        "variant",
        "time",
        "compared with the baseline",
        "longer set-up pays off after",
        "measured in",
        "failure",
    ]
    return table(
        "finals", headings, [("highlighted" if f.name == study.winner else "", _race_row(f)) for f in study.finalists]
    )


def _race_row(finalist: Finalist) -> list[str]:
    calls = finalist.break_even_calls
    cells = [
        str(finalist.timing or ""),
        str(finalist.against_baseline or ""),
        "" if calls is None else f"{calls} calls" if calls else "the first call",
        f"{finalist.rounds} rounds, {finalist.processes} process{'es' * (finalist.processes != 1)}",
        finalist.failure,
    ]
    return [f"<code>{escape(finalist.name)}</code>", *(escape(cell) for cell in cells)]


def _effects(effects: tuple[Effect, ...]) -> str:
    if not effects:
        return "<p>No two trials differ in exactly one value.</p>"
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
    title = "Speed with the value compared with the speed without it, everything else equal; measured in single trials, so small effects may be noise"
    return intervals(title, bars, centre=1.0)


def _trade_offs(study: Study) -> list[str]:
    """Return the trade-off between speed, set-up time and memory; empty when one trial is best in all three."""
    front = study.trade_offs
    if len(front) <= 1:
        return []
    rows = [
        ("", [f"<code>{escape(t.name)}</code>", f"{t.timing.median_ms:.4g}", f"{t.setup_s:.1f}", _device_mb(t)])
        for t in front
        if t.timing
    ]
    text = "<p>No other trial is at least as good as one of these in time, set-up time and device memory together.</p>"
    return [
        "<h2>Speed, set-up time and memory</h2>",
        text,
        table("trade", ["variant", "ms", "set-up, s", "device, MB"], rows),
    ]


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
            "" if trial.relative_error is None else f"{trial.relative_error:.1e}",
            escape(f"{trial.kind}; {trial.reason}" if trial.second_timing else trial.kind),
        ]
        rows.append(("" if timing else "faint", cells))
    headings = ["number", "variant", "ms", "interval, ms", "set-up, s", "device, MB", "relative error", "result"]
    return table("trials", headings, rows)


def _time(study: Study) -> str:
    seconds_by_phase: dict[str, float] = {}
    for trial in study.trials:
        for phase, seconds in trial.phases.items():
            seconds_by_phase[phase] = seconds_by_phase.get(phase, 0.0) + seconds
    rejected_s = sum(trial.seconds for trial in study.rejected)
    rows = [("", [escape(phase), f"{seconds:.1f}"]) for phase, seconds in seconds_by_phase.items()]
    rows.append(("moved", ["all phases of rejected trials", f"{rejected_s:.1f}"]))
    return table("time", ["phase", "seconds"], rows)


def _rejected(trial: TrialRecord) -> str:
    sections = [("stacks before the kill", trial.stacks), ("end of its output", trial.log_tail)]
    body = "".join(
        f"<h3>{label}</h3><pre>{escape(text[-_MAX_CHARS:])}</pre>" for label, text in sections if text.strip()
    )
    return (
        f'<details class="finding is-warning"><summary>{escape(rejection(trial))}</summary>'
        f"<div><p>{trial.seconds:.1f} s; <code>{escape(trial.log)}</code></p>{body}</div></details>"
    )


def _machine(study: Study) -> str:
    rows = [("workload", study.workload), ("search", study.search), ("profile", study.profile), *study.machine.items()]
    rows += [(name, ", ".join(str(value) for value in values)) for name, values in study.knobs.items()]
    return "<dl>" + "".join(f"<dt>{escape(label)}</dt><dd>{escape(text)}</dd>" for label, text in rows) + "</dl>"
