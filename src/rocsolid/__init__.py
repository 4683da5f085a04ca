"""torch.compile and device graphs, safe, then fast, on ROCm and on CUDA.

Names below are loaded when they are first used, so that importing the package costs nothing and changes nothing.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from rocsolid.version import __version__ as __version__

if TYPE_CHECKING:
    from rocsolid.api.capturing import capture as capture
    from rocsolid.api.dryrunning import dryrun as dryrun
    from rocsolid.api.explaining import explain as explain
    from rocsolid.api.linting import lint as lint
    from rocsolid.api.observing import breaks as breaks
    from rocsolid.api.observing import record_compiles as record_compiles
    from rocsolid.api.optimizing import optimize as optimize
    from rocsolid.api.pretending import pretend as pretend
    from rocsolid.api.probing import check as check
    from rocsolid.api.probing import probe as probe
    from rocsolid.api.probing import resolve as resolve
    from rocsolid.api.safety import apply as apply
    from rocsolid.api.safety import compile as compile  # noqa: A004 - called as torch calls it
    from rocsolid.api.safety import guard as guard
    from rocsolid.api.tracing import compare as compare
    from rocsolid.api.tracing import trace as trace
    from rocsolid.api.tuning import ab as ab
    from rocsolid.api.tuning import tune as tune
    from rocsolid.errors import RocsolidError as RocsolidError
    from rocsolid.model.bucket import Bucket as Bucket
    from rocsolid.model.environment import Environment as Environment
    from rocsolid.model.finding import Finding as Finding
    from rocsolid.model.plan import Plan as Plan
    from rocsolid.ops.audit import audit_op as audit_op
    from rocsolid.ops.patching import patch_calls as patch_calls
    from rocsolid.ops.vendor import vendor_op as vendor_op
    from rocsolid.runtime.capture.backend import hold_off_captures as hold_off_captures
    from rocsolid.runtime.capture.options import every as every


_HOMES = {
    "Bucket": "rocsolid.model.bucket",
    "Environment": "rocsolid.model.environment",
    "Finding": "rocsolid.model.finding",
    "Plan": "rocsolid.model.plan",
    "RocsolidError": "rocsolid.errors",
    "ab": "rocsolid.api.tuning",
    "apply": "rocsolid.api.safety",
    "audit_op": "rocsolid.ops.audit",
    "breaks": "rocsolid.api.observing",
    "capture": "rocsolid.api.capturing",
    "check": "rocsolid.api.probing",
    "compare": "rocsolid.api.tracing",
    "compile": "rocsolid.api.safety",
    "dryrun": "rocsolid.api.dryrunning",
    "every": "rocsolid.runtime.capture.options",
    "explain": "rocsolid.api.explaining",
    "guard": "rocsolid.api.safety",
    "hold_off_captures": "rocsolid.runtime.capture.backend",
    "lint": "rocsolid.api.linting",
    "optimize": "rocsolid.api.optimizing",
    "patch_calls": "rocsolid.ops.patching",
    "pretend": "rocsolid.api.pretending",
    "probe": "rocsolid.api.probing",
    "record_compiles": "rocsolid.api.observing",
    "resolve": "rocsolid.api.probing",
    "trace": "rocsolid.api.tracing",
    "tune": "rocsolid.api.tuning",
    "vendor_op": "rocsolid.ops.vendor",
}
__all__ = sorted(_HOMES)  # noqa: PLE0605 - a sorted list of strings all the same


class _Package(ModuleType):
    """Some folders are called like the function they serve: importing `rocsolid.probe` must not hide `rs.probe`."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - as many types as public names
        if name in _HOMES:
            value = getattr(import_module(_HOMES[name]), name)
            super().__setattr__(name, value)
            return value
        msg = f"module 'rocsolid' has no attribute {name!r}"
        raise AttributeError(msg)

    def __setattr__(self, name: str, value: object) -> None:
        if name in _HOMES and isinstance(value, ModuleType):
            return
        super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *_HOMES]


sys.modules[__name__].__class__ = _Package
