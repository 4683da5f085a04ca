"""Studies and duels as text for a terminal."""

from collections.abc import Iterator

from rocsolid.model.study import Duel, Finalist, Study, TrialRecord
from rocsolid.report.terminal import Terminal

_FEW = 10


def study_text(study: Study, terminal: Terminal, *, verbose: bool = False) -> str:
    """What won and why, the final race, what each value is worth, and what was rejected."""
    blocks = [
        "\n".join(_head(study, terminal)),
        "\n".join([terminal.paint("finals", "bold"), *(_finalist(f, study, terminal) for f in study.finalists)]),
        "\n".join([terminal.paint("trials", "bold"), *_trials(study, terminal, verbose=verbose)]),
    ]
    if study.effects:
        rows = [f"  {effect.speedup:5.2f} times  {effect.id}={effect.value}" for effect in study.effects]
        title = "what each value is worth, all else alike"
        blocks.append("\n".join([terminal.paint(title, "bold"), *(rows if verbose else rows[:_FEW])]))
    if study.rejected:
        blocks.append("\n".join([terminal.paint("rejected", "bold"), *_rejected(study, terminal, verbose=verbose)]))
    return "\n\n".join(blocks) + "\n"


def _head(study: Study, terminal: Terminal) -> Iterator[str]:
    where = ", ".join(filter(None, (study.where.get("device"), study.where.get("arch"))))
    yield terminal.paint(terminal.wrap(f"{study.winner}: {study.why}"), "bold")
    yield f"{study.workload} on {where}, torch {study.where.get('torch', '?')}, Python {study.where.get('python', '?')}"
    yield terminal.wrap(
        f"{len(study.trials)} trial{'s' * (len(study.trials) != 1)} by {study.search} from profile {study.profile}, {study.spent_s:.0f} s; {study.ended}; "
        f"noise between equal processes {study.noise:.1%}"
    )


def _finalist(finalist: Finalist, study: Study, terminal: Terminal) -> str:
    mark = "*" if finalist.name == study.winner else " "
    if finalist.out:
        return terminal.wrap(f"{finalist.name}: out, {finalist.out}", indent="    ", first=f"{mark} ")
    said = [str(finalist.timing)]
    if finalist.against_start:
        said.append(f"{finalist.against_start} beside the start")
    if finalist.break_even_calls:  # nought when its set-up is no longer than the start's
        said.append(f"its set-up pays after {finalist.break_even_calls} calls")
    said.append(f"{finalist.rounds} rounds, {finalist.processes} fresh process{'es' * (finalist.processes != 1)}")
    return terminal.wrap(f"{finalist.name}: {'; '.join(said)}", indent="    ", first=f"{mark} ")


def _trials(study: Study, terminal: Terminal, *, verbose: bool) -> Iterator[str]:
    measured = sorted((t for t in study.trials if t.timing), key=lambda t: t.timing.median_ms if t.timing else 0.0)
    for trial in measured if verbose else measured[:_FEW]:
        error = "" if trial.error is None else f", error {trial.error:.1e}"
        yield terminal.wrap(
            f"{trial.timing}, set up in {trial.setup_s:.1f} s{error}: {trial.name}", indent="      ", first="  "
        )
    if len(measured) > _FEW and not verbose:
        yield f"  and {len(measured) - _FEW} slower ones; -v shows them"


def _rejected(study: Study, terminal: Terminal, *, verbose: bool) -> Iterator[str]:
    for trial in study.rejected:
        yield terminal.wrap(rejection(trial), indent="      ", first="  ")
        if verbose and trial.log:
            yield f"      {trial.log}"


def rejection(trial: TrialRecord) -> str:
    """Why a trial has no time, in one line."""
    return f"{trial.name}: {trial.kind}, {trial.reason}" if trial.reason else f"{trial.name}: {trial.kind}"


def duel_text(duel: Duel, terminal: Terminal) -> str:
    """Two sides and the verdict."""
    said = duel.b_against_a
    rows = [
        terminal.paint(
            f"{said.verdict.name}: b is {said.speedup:.3f} times as fast as a [{said.low:.3f}, {said.high:.3f}]", "bold"
        ),
        f"  a  {duel.timing_a}  {duel.a}",
        f"  b  {duel.timing_b}  {duel.b}",
        f"  {duel.rounds} rounds in {duel.processes} processes a side; noise between equal processes {said.noise:.1%}",
        f"  {duel.workload} on {duel.where.get('device', '?')}, torch {duel.where.get('torch', '?')}",
    ]
    return "\n".join(rows) + "\n"
