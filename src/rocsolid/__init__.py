"""torch.compile and device graphs, safe, then fast, on ROCm and on CUDA.

Names below are loaded when they are first used, so that importing the package costs nothing and changes nothing.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from rocsolid.version import __version__ as __version__

if TYPE_CHECKING:
    from rocsolid.api.capture import capture as capture
    from rocsolid.api.dryrun import dryrun as dryrun
    from rocsolid.api.explain import explain as explain
    from rocsolid.api.lint import lint as lint
    from rocsolid.api.observe import breaks as breaks
    from rocsolid.api.observe import record_compiles as record_compiles
    from rocsolid.api.optimize import optimize as optimize
    from rocsolid.api.pretend import pretend as pretend
    from rocsolid.api.probe import check as check
    from rocsolid.api.probe import probe as probe
    from rocsolid.api.probe import resolve as resolve
    from rocsolid.api.safety import apply as apply
    from rocsolid.api.safety import compile as compile  # noqa: A004 - called as torch calls it
    from rocsolid.api.safety import guard as guard
    from rocsolid.api.trace import compare as compare
    from rocsolid.api.trace import trace as trace
    from rocsolid.api.tune import ab as ab
    from rocsolid.api.tune import tune as tune
    from rocsolid.errors import RocsolidError as RocsolidError
    from rocsolid.model.bucket import Bucket as Bucket
    from rocsolid.model.environment import Environment as Environment
    from rocsolid.model.finding import Finding as Finding
    from rocsolid.model.plan import Plan as Plan
    from rocsolid.ops.audit_op import audit_op as audit_op
    from rocsolid.ops.patch_calls import patch_calls as patch_calls
    from rocsolid.ops.vendor_op import vendor_op as vendor_op
    from rocsolid.runtime.capture.backends.base import pause_captures as pause_captures
    from rocsolid.runtime.capture.options import every as every


_HOMES = {
    "Bucket": "rocsolid.model.bucket",
    "Environment": "rocsolid.model.environment",
    "Finding": "rocsolid.model.finding",
    "Plan": "rocsolid.model.plan",
    "RocsolidError": "rocsolid.errors",
    "ab": "rocsolid.api.tune",
    "apply": "rocsolid.api.safety",
    "audit_op": "rocsolid.ops.audit_op",
    "breaks": "rocsolid.api.observe",
    "capture": "rocsolid.api.capture",
    "check": "rocsolid.api.probe",
    "compare": "rocsolid.api.trace",
    "compile": "rocsolid.api.safety",
    "dryrun": "rocsolid.api.dryrun",
    "every": "rocsolid.runtime.capture.options",
    "explain": "rocsolid.api.explain",
    "guard": "rocsolid.api.safety",
    "lint": "rocsolid.api.lint",
    "optimize": "rocsolid.api.optimize",
    "patch_calls": "rocsolid.ops.patch_calls",
    "pause_captures": "rocsolid.runtime.capture.backends.base",
    "pretend": "rocsolid.api.pretend",
    "probe": "rocsolid.api.probe",
    "record_compiles": "rocsolid.api.observe",
    "resolve": "rocsolid.api.probe",
    "trace": "rocsolid.api.trace",
    "tune": "rocsolid.api.tune",
    "vendor_op": "rocsolid.ops.vendor_op",
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
