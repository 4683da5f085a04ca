"""A tuned plan brings TunableOp's results along: here they become files again, and TunableOp is told to use them and to time nothing."""

import hashlib
import os
from dataclasses import replace
from typing import Final

from rocsolid.catalog import tunableop
from rocsolid.measure import user_cache
from rocsolid.model.plan import Decision, Plan
from rocsolid.model.setting import Channel

_WHY: Final = "The plan brings TunableOp's results along, so nothing is timed in the running program."


def with_results(plan: Plan, devices: int) -> Plan:
    """The plan with the variables that make TunableOp read the results; the plan itself when it has none."""
    if plan.tuned is None or not plan.tuned.tunableop:
        return plan
    text = plan.tuned.tunableop
    file = user_cache.cache_folder("tunableop") / hashlib.sha256(text.encode()).hexdigest()[:16] / "results.csv"
    file.parent.mkdir(parents=True, exist_ok=True)
    for number in range(max(1, devices)):  # TunableOp puts the device's number before the ending
        here = file.with_name(f"results{number}.csv")
        if not here.exists():
            partial = here.with_suffix(f".{os.getpid()}")
            partial.write_text(text, encoding="utf-8")
            partial.replace(here)
    wanted = {
        tunableop.ENABLED: "1",
        tunableop.TUNING: "0",
        tunableop.FILENAME: str(file),
    }
    told = tuple(
        Decision(id=f"process.{name}", value=value, channel=Channel.PROCESS, why=_WHY, profile="tune")
        for name, value in wanted.items()
    )
    others = tuple(d for d in plan if d.name not in wanted)
    return replace(plan, decisions=(*others, *told))
