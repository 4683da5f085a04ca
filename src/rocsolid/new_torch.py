"""Probes the private torch names that rocsolid uses, in a child process.

`rocsolid doctor` does it on any torch. A torch that is newer than every release that rocsolid was tested with is probed once per build,
before the first use of a name: names that fail are closed, so that the features that need them fall back, and one warning lists them.
"""

import hashlib
import importlib.metadata
import importlib.util
import json
import os
import sys
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Final

from rocsolid.catalog.support import SUPPORTED_TORCH
from rocsolid.model.environment import CheckStatus
from rocsolid.model.log import log as _log
from rocsolid.model.release import compare
from rocsolid.torchapi.private_api import close_names
from rocsolid.version import __version__

if TYPE_CHECKING:
    from rocsolid.model.probed_name import ProbedName

_DEADLINE_S: Final = 300.0


def probe_private_names() -> "tuple[Sequence[ProbedName], str]":
    """Return the result for every name, and why there is none if the child process failed."""
    from rocsolid.process.run_command import Command, run_with_deadline
    from rocsolid.torchapi import name_probes

    # Without rocsolid's variables: a program under `rocsolid run` would otherwise start the probes again in the child.
    env = {name: value for name, value in os.environ.items() if not name.startswith("ROCSOLID_")}
    command = Command(name="probes", command=name_probes.command(), deadline_s=_DEADLINE_S, env=env)
    done = run_with_deadline(command)
    results = name_probes.read_output(done.stdout)
    if results is None:
        how = "crashed" if done.check.status is CheckStatus.CRASHED else "did not end"
        return (), f"the process that probes torch {how}: {done.check.detail}"
    return results, ""


@cache
def check_new_torch(*, warn: bool = True) -> None:
    """Probe a torch that is newer than the tested releases, once per process and build. Does nothing on any other torch.

    Every public function that uses private names calls it first; a child process of ours does not warn again.
    """
    version = installed_torch_version()
    newest = SUPPORTED_TORCH.last
    if not version or (compare(version, newest) <= 0 and ".dev" not in version):
        return
    results, problem = _kept_results(version)
    failed = [result for result in results if result.problem]
    close_names((result.name for result in failed), quietly=True)
    if not warn:
        return
    if problem:
        state = f"{problem}; missing names are found when they are used"
    elif failed:
        state = "these parts fall back: " + "; ".join(dict.fromkeys(result.without for result in failed))
    else:
        state = f"all {len(results)} private names that it uses passed their probes"
    _log.warning(
        "torch %s is newer than the releases that rocsolid was tested with (%s). %s. Details: rocsolid doctor",
        version,
        SUPPORTED_TORCH,
        state,
    )


def installed_torch_version() -> str:
    """The version of the imported torch, or of the one that would be imported; empty if there is none."""
    if "torch" in sys.modules:
        return str(getattr(sys.modules["torch"], "__version__", ""))
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return ""


def _kept_results(version: str) -> "tuple[Sequence[ProbedName], str]":
    from rocsolid.measure import user_cache
    from rocsolid.model.probed_name import ProbedName

    spec = importlib.util.find_spec("torch")
    key = f"{version} {spec.origin if spec else ''} {sys.version} {__version__}"
    file = user_cache.cache_folder("probes") / hashlib.sha256(key.encode()).hexdigest()[:16]
    if (payload := user_cache.read(file)) is not None:
        return [ProbedName(**row) for row in json.loads(payload)], ""
    results, problem = probe_private_names()
    if not problem:
        user_cache.write(file, json.dumps([vars(result) for result in results]).encode())
    return results, problem
