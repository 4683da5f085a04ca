"""Writes the TunableOp results of a tuned plan to files, and makes TunableOp use them without tuning."""

import hashlib
from dataclasses import replace
from typing import Final

from rocsolid.catalog import tunableop
from rocsolid.measure import user_cache
from rocsolid.model.plan import Decision, Plan
from rocsolid.model.setting import Channel

_WHY: Final = "The plan contains TunableOp results: the program uses them and does not tune."


def with_tunableop_results(plan: Plan, device_count: int) -> Plan:
    """Add the variables that make TunableOp read the results; a plan without results is returned unchanged."""
    if plan.tuned is None or not plan.tuned.tunableop:
        return plan
    text = plan.tuned.tunableop
    file = user_cache.cache_folder("tunableop") / hashlib.sha256(text.encode()).hexdigest()[:16] / "results.csv"
    for index in range(max(1, device_count)):  # TunableOp inserts the device index before the suffix
        if not user_cache.write_bytes(file.with_name(f"results{index}.csv"), text.encode()):
            return plan
    variables = {
        tunableop.ENABLED: "1",
        tunableop.TUNING: "0",
        tunableop.FILENAME: str(file),
    }
    decisions = tuple(
        Decision(id=f"process.{name}", value=value, channel=Channel.PROCESS, why=_WHY, profile="tune")
        for name, value in variables.items()
    )
    others = tuple(d for d in plan if d.name not in variables)
    return replace(plan, decisions=(*others, *decisions))
