"""Studies and A/B tests as text for a terminal."""

from collections.abc import Iterator

from rocsolid.model.study import ABResult, Finalist, Study, TrialRecord
from rocsolid.report.terminal import Terminal

_MAX_ROWS = 10  # without -v


def study_text(study: Study, terminal: Terminal, *, verbose: bool = False) -> str:
    """Return the best variant, the final comparison, the trials, the effect of each value, and the rejected variants."""
    blocks = [
        "\n".join(_head(study, terminal)),
        _block(
            "final comparison (* is the best variant)",
            (_finalist(f, study, terminal) for f in study.finalists),
            terminal,
        ),
        _block("trials, fastest first", _trials(study, terminal, verbose=verbose), terminal),
    ]
    if study.effects:
        rows = [f"  {effect.speedup:5.2f}x  {effect.id}={effect.value}" for effect in study.effects]
        blocks.append(
            _block(
                "speed with each value compared with the speed without it",
                rows if verbose else rows[:_MAX_ROWS],
                terminal,
            )
        )
    if study.rejected:
        blocks.append(_block("rejected", _rejected(study, terminal, verbose=verbose), terminal))
    return "\n\n".join(blocks) + "\n"


def _block(title: str, rows: "Iterator[str] | list[str]", terminal: Terminal) -> str:
    return "\n".join([terminal.paint(title, "bold"), *rows])


def _head(study: Study, terminal: Terminal) -> Iterator[str]:
    machine = ", ".join(filter(None, (study.machine.get("device"), study.machine.get("arch"))))
    torch, python = study.machine.get("torch", "?"), study.machine.get("python", "?")
    yield terminal.paint(
        terminal.wrap(f"{study.verdict.name}: the best variant is {study.winner}; {study.reason}"), "bold"
    )
    yield f"{study.workload} on {machine}, torch {torch}, Python {python}"
    yield terminal.wrap(
        f"{_count(len(study.trials), 'trial')} (search {study.search}, baseline: profile {study.profile}) "
        f"in {study.elapsed_s:.0f} s; {study.stop_reason}; noise: processes that run the same variant differ by {study.noise:.1%}"
    )


def _finalist(finalist: Finalist, study: Study, terminal: Terminal) -> str:
    mark = "*" if finalist.name == study.winner else " "
    if finalist.failure:
        return terminal.wrap(f"{finalist.name}: failed, {finalist.failure}", indent="    ", first=f"{mark} ")
    parts = [str(finalist.timing)]
    if finalist.against_baseline:
        gain = finalist.against_baseline
        speed = f"{gain.speedup:.2f} times as fast as the baseline [{gain.low:.2f}, {gain.high:.2f}]"
        parts.append(f"{speed}, {gain.verdict.value}")
    if finalist.break_even_calls:  # 0 when its set-up takes no longer than that of the baseline
        parts.append(f"its longer set-up pays off after {finalist.break_even_calls} calls")
    parts.append(f"{_count(finalist.rounds, 'round')} in {_count(finalist.processes, 'fresh process', 'es')}")
    return terminal.wrap(f"{finalist.name}: {'; '.join(parts)}", indent="    ", first=f"{mark} ")


def _trials(study: Study, terminal: Terminal, *, verbose: bool) -> Iterator[str]:
    measured = sorted((t for t in study.trials if t.timing), key=lambda t: t.timing.median_ms if t.timing else 0.0)
    for trial in measured if verbose else measured[:_MAX_ROWS]:
        error = "" if trial.relative_error is None else f", relative error {trial.relative_error:.1e}"
        yield terminal.wrap(
            f"{trial.timing}, set up in {trial.setup_s:.1f} s{error}: {trial.name}", indent="      ", first="  "
        )
    if len(measured) > _MAX_ROWS and not verbose:
        yield f"  and {len(measured) - _MAX_ROWS} slower ones (show them with -v)"


def _rejected(study: Study, terminal: Terminal, *, verbose: bool) -> Iterator[str]:
    for trial in study.rejected:
        yield terminal.wrap(rejection(trial), indent="      ", first="  ")
        if verbose and trial.log:
            yield f"      {trial.log}"


def rejection(trial: TrialRecord) -> str:
    """Return why a trial has no time, in one line."""
    return f"{trial.name}: {trial.kind}, {trial.reason}" if trial.reason else f"{trial.name}: {trial.kind}"


def ab_text(result: ABResult, terminal: Terminal) -> str:
    """Return the verdict and the times of both sides."""
    comparison = result.b_against_a
    headline = (
        f"{comparison.verdict.name}: b is {comparison.speedup:.3f} times as fast as a, 95 % interval "
        f"[{comparison.low:.3f}, {comparison.high:.3f}]"
    )
    rounds, processes = _count(result.rounds, "round"), _count(result.processes, "process", "es")
    rows = [
        terminal.paint(headline, "bold"),
        f"  a  {result.timing_a}  {result.a}",
        f"  b  {result.timing_b}  {result.b}",
        terminal.wrap(
            f"{rounds} in {processes} per side; noise: processes that run the same variant differ by {comparison.noise:.1%}",
            indent="  ",
        ),
        f"  {result.workload} on {result.machine.get('device', '?')}, torch {result.machine.get('torch', '?')}",
    ]
    if any(side.startswith("git:") for side in (result.a, result.b)):
        note = "results of a and b were not compared with each other: rs.verify(new, old, example_inputs) compares two versions"
        rows.append(terminal.wrap(note, indent="  "))
    return "\n".join(rows) + "\n"


def _count(number: int, noun: str, plural: str = "s") -> str:
    return f"{number} {noun}{plural * (number != 1)}"
