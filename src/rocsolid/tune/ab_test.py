"""Two sides of one workload, straight against each other."""

import time
from collections.abc import Callable, Mapping
from typing import Final

from rocsolid.errors import CannotRunError
from rocsolid.measure.process_race import Knockout, Rules, knockout
from rocsolid.model.study import Duel
from rocsolid.model.timing import Verdict
from rocsolid.tune.space import Choices
from rocsolid.tune.trials import Job, Resident

Side = tuple[str, Job, Choices]
_MORE: Final = 2  # times that a comparison goes on when it is unsure


def run_duel(
    sides: tuple[Side, Side],
    rules: Rules,
    least_gain: float,
    told: Callable[[str], None],
) -> Duel:
    """Race the two with a control of the first; raises CannotRunError when either cannot be measured."""
    lanes: dict[str, Resident] = {}
    over = time.monotonic() + rules.budget_s
    try:
        for key, (_, job, choices) in zip("ab", sides, strict=True):
            lanes[key] = Resident(job, choices, key, told)
        lanes["control"] = Resident(sides[0][1], sides[0][2], "control", told)
        _both_stand(sides, lanes)  # before a race is run for nothing
        raced = _raced(lanes, rules, told)
        for _ in range(_MORE):
            ended = any(lane.out for lane in lanes.values()) or time.monotonic() > over
            if ended or raced.beside("a", "b", least_gain).verdict is not Verdict.UNSURE:
                break
            told("too close to call, so all of it once more")
            for lane in lanes.values():
                lane.renew()
            raced = raced.followed_by(_raced(lanes, rules, told))
        where = {key: lanes[key].finish() for key in "ab"}
        _both_stand(sides, lanes)
    finally:
        for lane in lanes.values():
            lane.cancel()
    return Duel(
        workload=sides[0][1].workload,
        a=sides[0][0],
        b=sides[1][0],
        timing_a=raced.timing("a"),
        timing_b=raced.timing("b"),
        b_against_a=raced.beside("a", "b", least_gain),
        rounds=len(raced.samples_ms["a"]),
        processes=lanes["a"].processes,
        where=where["a"],
    )


def _raced(lanes: Mapping[str, Resident], rules: Rules, told: Callable[[str], None]) -> Knockout:
    ours = {key: lanes[key] for key in "ab"}
    return knockout(ours, lanes["control"], rules, lambda number, _: told(f"round {number + 1} of {rules.rounds}"))


def _both_stand(sides: tuple[Side, Side], lanes: Mapping[str, Resident]) -> None:
    for key, (name, _, _) in zip("ab", sides, strict=True):
        lanes[key].ready()
        if lanes[key].out:
            msg = f"{key} ({name}) cannot be measured: {lanes[key].out}"
            raise CannotRunError(msg)
