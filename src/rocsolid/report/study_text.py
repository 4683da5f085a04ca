"""Studies and A/B tests as text for a terminal."""

from collections.abc import Iterator

from rocsolid.model.study import ABResult, Finalist, Study, TrialRecord
from rocsolid.report.terminal import Terminal

_SHOWN = 10  # rows without -v


def study_text(study: Study, terminal: Terminal, *, verbose: bool = False) -> str:
    """The winner and why, the final race, the trials, the effect of each value, and the rejected variants."""
    blocks = [
        "\n".join(_head(study, terminal)),
        _block("final race (* is the winner)", (_finalist(f, study, terminal) for f in study.finalists), terminal),
        _block("trials, fastest first", _trials(study, terminal, verbose=verbose), terminal),
    ]
    if study.effects:
        rows = [f"  {effect.speedup:5.2f}x  {effect.id}={effect.value}" for effect in study.effects]
        blocks.append(
            _block("speed with each value, everything else equal", rows if verbose else rows[:_SHOWN], terminal)
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
        terminal.wrap(f"{study.verdict.name}: the best variant is {study.winner}: {study.reason}"), "bold"
    )
    yield f"{study.workload} on {machine}, torch {torch}, Python {python}"
    yield terminal.wrap(
        f"{_count(len(study.trials), 'trial')} (search {study.search}, started from profile {study.profile}) "
        f"in {study.elapsed_s:.0f} s; {study.stopped}; noise between equal processes {study.noise:.1%}"
    )


def _finalist(finalist: Finalist, study: Study, terminal: Terminal) -> str:
    mark = "*" if finalist.name == study.winner else " "
    if finalist.failure:
        return terminal.wrap(f"{finalist.name}: failed, {finalist.failure}", indent="    ", first=f"{mark} ")
    parts = [str(finalist.timing)]
    if finalist.against_start:
        gain = finalist.against_start
        speed = f"{gain.speedup:.2f} times as fast as the start [{gain.low:.2f}, {gain.high:.2f}]"
        parts.append(f"{speed}, {gain.verdict.value}")
    if finalist.break_even_calls:  # 0 when its set-up is no longer than the start's
        parts.append(f"its longer set-up pays off after {finalist.break_even_calls} calls")
    parts.append(f"{_count(finalist.rounds, 'round')} in {_count(finalist.processes, 'fresh process', 'es')}")
    return terminal.wrap(f"{finalist.name}: {'; '.join(parts)}", indent="    ", first=f"{mark} ")


def _trials(study: Study, terminal: Terminal, *, verbose: bool) -> Iterator[str]:
    measured = sorted((t for t in study.trials if t.timing), key=lambda t: t.timing.median_ms if t.timing else 0.0)
    for trial in measured if verbose else measured[:_SHOWN]:
        error = "" if trial.error is None else f", relative error {trial.error:.1e}"
        yield terminal.wrap(
            f"{trial.timing}, set up in {trial.setup_s:.1f} s{error}: {trial.name}", indent="      ", first="  "
        )
    if len(measured) > _SHOWN and not verbose:
        yield f"  and {len(measured) - _SHOWN} slower ones (-v shows them)"


def _rejected(study: Study, terminal: Terminal, *, verbose: bool) -> Iterator[str]:
    for trial in study.rejected:
        yield terminal.wrap(rejection(trial), indent="      ", first="  ")
        if verbose and trial.log:
            yield f"      {trial.log}"


def rejection(trial: TrialRecord) -> str:
    """Why a trial has no time, in one line."""
    return f"{trial.name}: {trial.kind}, {trial.reason}" if trial.reason else f"{trial.name}: {trial.kind}"


def ab_text(result: ABResult, terminal: Terminal) -> str:
    """The verdict and both sides."""
    found = result.b_against_a
    headline = (
        f"{found.verdict.name}: b is {found.speedup:.3f} times as fast as a, 95 % interval "
        f"[{found.low:.3f}, {found.high:.3f}]"
    )
    rounds, processes = _count(result.rounds, "round"), _count(result.processes, "process", "es")
    rows = [
        terminal.paint(headline, "bold"),
        f"  a  {result.timing_a}  {result.a}",
        f"  b  {result.timing_b}  {result.b}",
        f"  {rounds} in {processes} per side; noise between equal processes {found.noise:.1%}",
        f"  {result.workload} on {result.machine.get('device', '?')}, torch {result.machine.get('torch', '?')}",
    ]
    return "\n".join(rows) + "\n"


def _count(number: int, noun: str, plural: str = "s") -> str:
    return f"{number} {noun}{plural * (number != 1)}"
