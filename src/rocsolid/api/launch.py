"""Runs in a program that `rocsolid run` started, right before it imports torch."""

import atexit
import os

from rocsolid.api.safety import chosen_plan, guarding
from rocsolid.probe.pretended import pretended_chip
from rocsolid.probe.quick_facts import quick_environment
from rocsolid.runtime.guard import Guard
from rocsolid.runtime.launch.protect import Protection, set_variables
from rocsolid.runtime.launch.tunableop import with_results
from rocsolid.torchapi.pretend.fake_device_info import StandIn

_RUN = "ROCSOLID_RUN_"


def start() -> Protection:
    """Bring variables and compiler to what was asked of `rocsolid run`."""
    asked = {
        name: os.environ.get(f"{_RUN}{name.upper()}", "")
        for name in ("profile", "plan", "deadline", "report", "anywhere")
    }
    if given := pretended_chip():
        StandIn(given).keep()
    env = quick_environment()
    plan = chosen_plan(asked["profile"] or "safe", asked["plan"] or None, env, anywhere=bool(asked["anywhere"]))
    plan = with_results(plan, len(env.usable_devices))
    guard = Guard(guarding(plan, env), deadline_s=float(asked["deadline"]) if asked["deadline"] else None, quiet=True)
    variables = tuple(set_variables(plan, os.environ))
    protection = Protection(plan=plan, guard=guard, variables=variables, pretended=env.pretended)
    guard.keep()
    atexit.register(protection.tell, asked["report"])
    return protection
