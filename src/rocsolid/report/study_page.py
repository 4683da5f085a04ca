"""A study as one self-contained HTML page: the best variant, the final comparison, the effect of each value, the rejected variants."""

from rocsolid.model.codec import encode
from rocsolid.model.plan_toml import to_toml
from rocsolid.model.study import Effect, Finalist, Study, TrialRecord
from rocsolid.model.timing import Verdict
from rocsolid.report.html import Html, Node, join, tag
from rocsolid.report.html_page import definitions, page, table
from rocsolid.report.plot import Bar, intervals
from rocsolid.report.study_text import rejection

_COLOURS = {Verdict.FASTER: "good", Verdict.SLOWER: "critical", Verdict.SAME: "info", Verdict.UNSURE: "warning"}
_MAX_CHARS = 8000  # of the stacks and of the output


def study_html(study: Study) -> str:
    """Return the whole page."""
    rejected = [_rejected(t) for t in study.rejected]
    return page(
        f"Tuned: {study.workload.rpartition('/')[2]}",
        _subtitle(study),
        _verdict(study),
        tag("h2", "Final comparison"),
        _race_plot(study),
        _race_table(study),
        tag("h2", "Effect of each value"),
        _effects(study.effects),
        _trade_offs(study),
        tag("h2", "All trials"),
        _trials(study),
        tag("h2", "Time per phase"),
        _time(study),
        tag("h2", "Rejected"),
        rejected or tag("p", "Every variant could be measured.", class_="good"),
        tag("h2", "Plan"),
        tag(
            "p",
            "Save it as ",
            tag("code", "plan.toml"),
            "; ",
            tag("code", 'rs.optimize(model, x, plan="plan.toml")'),
            " uses it.",
        ),
        tag("pre", to_toml(encode(study.best)), id="plan", tabindex="0"),
        tag("h2", "Machine and search space"),
        _machine(study),
    )


def _subtitle(study: Study) -> str:
    device, arch, torch = (study.machine.get(name, "?") for name in ("device", "arch", "torch"))
    trials = f"{len(study.trials)} trial{'s' * (len(study.trials) != 1)}"
    return f"{device} · {arch} · torch {torch} · {trials} in {study.elapsed_s:.0f} s"


def _verdict(study: Study) -> Html:
    return join(
        tag(
            "ul",
            tag("li", tag("b", study.verdict.name, class_=_COLOURS[study.verdict]), tag("code", study.winner)),
            tag("li", tag("b", f"{study.noise:.1%}"), "difference between identical processes"),
            tag("li", tag("b", len(study.rejected)), "rejected"),
            class_="counts",
        ),
        tag("p", f"{study.reason[:1].upper() + study.reason[1:]}. {study.stop_reason.capitalize()}."),
    )


def _race_plot(study: Study) -> Html:
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
    if not bars:
        return tag("p", "Only the baseline was measured.")
    return intervals(title, bars, centre=1.0, band=study.noise)


def _race_table(study: Study) -> Html:
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


def _race_row(finalist: Finalist) -> list[Node]:
    calls = finalist.break_even_calls
    return [
        tag("code", finalist.name),
        str(finalist.timing or ""),
        str(finalist.against_baseline or ""),
        "" if calls is None else f"{calls} calls" if calls else "the first call",
        f"{finalist.rounds} rounds, {finalist.processes} process{'es' * (finalist.processes != 1)}",
        finalist.failure,
    ]


def _effects(effects: tuple[Effect, ...]) -> Html:
    if not effects:
        return tag("p", "No two trials differ in exactly one value.")
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


def _trade_offs(study: Study) -> Html | None:
    """Return the trade-off between speed, set-up time and memory; None when one trial is best in all three."""
    front = study.trade_offs
    if len(front) <= 1:
        return None
    rows: list[tuple[str, list[Node]]] = [
        ("", [tag("code", t.name), f"{t.timing.median_ms:.4g}", f"{t.setup_s:.1f}", _device_mb(t)])
        for t in front
        if t.timing
    ]
    text = "No other trial is at least as good as one of these in time, set-up time and device memory together."
    return join(
        tag("h2", "Speed, set-up time and memory"),
        tag("p", text),
        table("trade", ["variant", "ms", "set-up, s", "device, MB"], rows),
    )


def _device_mb(trial: TrialRecord) -> str:
    return f"{trial.peak_bytes / 2**20:.0f}" if trial.peak_bytes else ""


def _trials(study: Study) -> Html:
    rows: list[tuple[str, list[Node]]] = []
    for trial in study.trials:
        timing = trial.timing
        cells: list[Node] = [
            str(trial.number),
            tag("code", trial.name),
            f"{timing.median_ms:.4g}" if timing else "",
            f"{timing.low_ms:.4g} to {timing.high_ms:.4g}" if timing else "",
            f"{trial.setup_s:.1f}",
            _device_mb(trial),
            "" if trial.relative_error is None else f"{trial.relative_error:.1e}",
            f"{trial.kind}; {trial.reason}" if trial.second_timing else trial.kind,
        ]
        rows.append(("" if timing else "faint", cells))
    headings = ["number", "variant", "ms", "interval, ms", "set-up, s", "device, MB", "relative error", "result"]
    return table("trials", headings, rows)


def _time(study: Study) -> Html:
    seconds_by_phase: dict[str, float] = {}
    for trial in study.trials:
        for phase, seconds in trial.phases.items():
            seconds_by_phase[phase] = seconds_by_phase.get(phase, 0.0) + seconds
    rejected_s = sum(trial.seconds for trial in study.rejected)
    rows = [("", [phase, f"{seconds:.1f}"]) for phase, seconds in seconds_by_phase.items()]
    rows.append(("moved", ["all phases of rejected trials", f"{rejected_s:.1f}"]))
    return table("time", ["phase", "seconds"], rows)


def _rejected(trial: TrialRecord) -> Html:
    sections = [("stacks before the kill", trial.stacks), ("end of its output", trial.log_tail)]
    body = [[tag("h3", label), tag("pre", text[-_MAX_CHARS:])] for label, text in sections if text.strip()]
    log = tag("p", f"{trial.seconds:.1f} s; ", tag("code", trial.log))
    return tag("details", tag("summary", rejection(trial)), tag("div", log, body), class_="finding is-warning")


def _machine(study: Study) -> Html:
    rows = [("workload", study.workload), ("search", study.search), ("profile", study.profile), *study.machine.items()]
    rows += [(name, ", ".join(str(value) for value in values)) for name, values in study.knobs.items()]
    return definitions(rows)
