"""Protects a program that `rocsolid run` started, right before it imports torch."""

import atexit
import os

from rocsolid.api.safety import enforced_part, select_plan
from rocsolid.probe.pretended import pretended_chip
from rocsolid.probe.quick_facts import quick_environment
from rocsolid.runtime.guard import Guard
from rocsolid.runtime.launch.protect import Protection, set_variables
from rocsolid.runtime.launch.tunableop import with_tunableop_results
from rocsolid.torchapi.pretend.fake_device_info import FakeDeviceInfo

_VARIABLE_PREFIX = "ROCSOLID_RUN_"


def start() -> Protection:
    """Apply the options of `rocsolid run` to this process."""
    options = {
        name: os.environ.get(f"{_VARIABLE_PREFIX}{name.upper()}", "")
        for name in ("profile", "plan", "deadline", "report", "ignore_platform")
    }
    if chip := pretended_chip():
        FakeDeviceInfo(chip).keep()
    env = quick_environment()
    plan = select_plan(
        options["profile"] or "safe", options["plan"] or None, env, ignore_platform=bool(options["ignore_platform"])
    )
    plan = with_tunableop_results(plan, len(env.usable_devices))
    guard = Guard(
        enforced_part(plan, env), deadline_s=float(options["deadline"]) if options["deadline"] else None, quiet=True
    )
    variables = tuple(set_variables(plan, os.environ))
    protection = Protection(plan=plan, guard=guard, variables=variables, pretended=env.pretended)
    guard.keep()
    atexit.register(protection.report_changes, options["report"])
    return protection
