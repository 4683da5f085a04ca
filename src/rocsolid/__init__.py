"""torch.compile and CUDA/HIP graphs, safe, then fast, on ROCm and on CUDA.

Every name is loaded when it is first used, so that importing the package is quick and changes nothing.
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
    from rocsolid.api.observe import compiles as compiles
    from rocsolid.api.observe import record_compiles as record_compiles
    from rocsolid.api.optimize import optimize as optimize
    from rocsolid.api.pretend import pretend as pretend
    from rocsolid.api.probe import check as check
    from rocsolid.api.probe import probe as probe
    from rocsolid.api.probe import resolve as resolve
    from rocsolid.api.profile import profile as profile
    from rocsolid.api.safety import apply as apply
    from rocsolid.api.safety import compile as compile  # noqa: A004 - the name torch uses
    from rocsolid.api.safety import guard as guard
    from rocsolid.api.trace import compare as compare
    from rocsolid.api.trace import trace as trace
    from rocsolid.api.tune import ab as ab
    from rocsolid.api.tune import tune as tune
    from rocsolid.api.verify import verify as verify
    from rocsolid.errors import CannotRunError as CannotRunError
    from rocsolid.errors import CaptureError as CaptureError
    from rocsolid.errors import CompileDeadlineError as CompileDeadlineError
    from rocsolid.errors import CompileInCaptureError as CompileInCaptureError
    from rocsolid.errors import InputError as InputError
    from rocsolid.errors import MissingExtraError as MissingExtraError
    from rocsolid.errors import PlanError as PlanError
    from rocsolid.errors import RecompileError as RecompileError
    from rocsolid.errors import RocsolidError as RocsolidError
    from rocsolid.errors import StaleOutputError as StaleOutputError
    from rocsolid.errors import TimedOutError as TimedOutError
    from rocsolid.errors import UnknownNameError as UnknownNameError
    from rocsolid.errors import UnsupportedTorchError as UnsupportedTorchError
    from rocsolid.errors import UsageError as UsageError
    from rocsolid.errors import VendorOpError as VendorOpError
    from rocsolid.model.bucket import Bucket as Bucket
    from rocsolid.model.capture_report import CallPrediction as CallPrediction
    from rocsolid.model.capture_report import CaptureReport as CaptureReport
    from rocsolid.model.capture_report import CheckFailure as CheckFailure
    from rocsolid.model.capture_report import Refusal as Refusal
    from rocsolid.model.compile_log import BreakReport as BreakReport
    from rocsolid.model.compile_log import CompiledGraph as CompiledGraph
    from rocsolid.model.compile_log import CompileLog as CompileLog
    from rocsolid.model.compile_log import GraphBreak as GraphBreak
    from rocsolid.model.compile_report import CompileReport as CompileReport
    from rocsolid.model.compile_report import EagerFallback as EagerFallback
    from rocsolid.model.dryrun import DryRunRecord as DryRunRecord
    from rocsolid.model.environment import CheckResult as CheckResult
    from rocsolid.model.environment import Environment as Environment
    from rocsolid.model.finding import Finding as Finding
    from rocsolid.model.finding import Severity as Severity
    from rocsolid.model.form import Form as Form
    from rocsolid.model.lint import LintRecord as LintRecord
    from rocsolid.model.op_audit import OpAudit as OpAudit
    from rocsolid.model.optimize_report import FormResult as FormResult
    from rocsolid.model.optimize_report import OptimizeReport as OptimizeReport
    from rocsolid.model.plan import Plan as Plan
    from rocsolid.model.pretended_chip import PretendedChip as PretendedChip
    from rocsolid.model.program_report import ProgramPart as ProgramPart
    from rocsolid.model.program_report import ProgramReport as ProgramReport
    from rocsolid.model.progress import Step as Step
    from rocsolid.model.study import ABResult as ABResult
    from rocsolid.model.study import Study as Study
    from rocsolid.model.study import TrialRecord as TrialRecord
    from rocsolid.model.timing import SpeedComparison as SpeedComparison
    from rocsolid.model.timing import Timing as Timing
    from rocsolid.model.timing import Verdict as Verdict
    from rocsolid.model.trace import TraceComparison as TraceComparison
    from rocsolid.model.trace import TraceReport as TraceReport
    from rocsolid.model.verify_report import Accuracy as Accuracy
    from rocsolid.model.verify_report import Culprit as Culprit
    from rocsolid.model.verify_report import VerifyReport as VerifyReport
    from rocsolid.observe.recorder import CompileRecorder as CompileRecorder
    from rocsolid.ops.audit_op import audit_op as audit_op
    from rocsolid.ops.patch_calls import patch_calls as patch_calls
    from rocsolid.ops.vendor_op import VendorOp as VendorOp
    from rocsolid.ops.vendor_op import vendor_op as vendor_op
    from rocsolid.optimize.optimized import Optimized as Optimized
    from rocsolid.optimize.optimized import OptimizedModule as OptimizedModule
    from rocsolid.runtime.applied_plan import Applied as Applied
    from rocsolid.runtime.capture.backends.base import pause_captures as pause_captures
    from rocsolid.runtime.capture.captured import Captured as Captured
    from rocsolid.runtime.capture.captured import CapturedModule as CapturedModule
    from rocsolid.runtime.capture.options import Verify as Verify
    from rocsolid.runtime.capture.options import every as every
    from rocsolid.runtime.guard import Guard as Guard
    from rocsolid.tune.effort import Effort as Effort


_HOMES = {
    "ABResult": "rocsolid.model.study",
    "Accuracy": "rocsolid.model.verify_report",
    "Applied": "rocsolid.runtime.applied_plan",
    "BreakReport": "rocsolid.model.compile_log",
    "Bucket": "rocsolid.model.bucket",
    "CallPrediction": "rocsolid.model.capture_report",
    "CannotRunError": "rocsolid.errors",
    "CaptureError": "rocsolid.errors",
    "CaptureReport": "rocsolid.model.capture_report",
    "Captured": "rocsolid.runtime.capture.captured",
    "CapturedModule": "rocsolid.runtime.capture.captured",
    "CheckFailure": "rocsolid.model.capture_report",
    "CheckResult": "rocsolid.model.environment",
    "CompileDeadlineError": "rocsolid.errors",
    "CompileInCaptureError": "rocsolid.errors",
    "CompileLog": "rocsolid.model.compile_log",
    "CompileRecorder": "rocsolid.observe.recorder",
    "CompileReport": "rocsolid.model.compile_report",
    "CompiledGraph": "rocsolid.model.compile_log",
    "Culprit": "rocsolid.model.verify_report",
    "DryRunRecord": "rocsolid.model.dryrun",
    "EagerFallback": "rocsolid.model.compile_report",
    "Effort": "rocsolid.tune.effort",
    "Environment": "rocsolid.model.environment",
    "Finding": "rocsolid.model.finding",
    "Form": "rocsolid.model.form",
    "FormResult": "rocsolid.model.optimize_report",
    "GraphBreak": "rocsolid.model.compile_log",
    "Guard": "rocsolid.runtime.guard",
    "InputError": "rocsolid.errors",
    "LintRecord": "rocsolid.model.lint",
    "MissingExtraError": "rocsolid.errors",
    "OpAudit": "rocsolid.model.op_audit",
    "OptimizeReport": "rocsolid.model.optimize_report",
    "Optimized": "rocsolid.optimize.optimized",
    "OptimizedModule": "rocsolid.optimize.optimized",
    "Plan": "rocsolid.model.plan",
    "PlanError": "rocsolid.errors",
    "PretendedChip": "rocsolid.model.pretended_chip",
    "ProgramPart": "rocsolid.model.program_report",
    "ProgramReport": "rocsolid.model.program_report",
    "RecompileError": "rocsolid.errors",
    "Refusal": "rocsolid.model.capture_report",
    "RocsolidError": "rocsolid.errors",
    "Severity": "rocsolid.model.finding",
    "SpeedComparison": "rocsolid.model.timing",
    "StaleOutputError": "rocsolid.errors",
    "Step": "rocsolid.model.progress",
    "Study": "rocsolid.model.study",
    "TimedOutError": "rocsolid.errors",
    "Timing": "rocsolid.model.timing",
    "TraceComparison": "rocsolid.model.trace",
    "TraceReport": "rocsolid.model.trace",
    "TrialRecord": "rocsolid.model.study",
    "UnknownNameError": "rocsolid.errors",
    "UnsupportedTorchError": "rocsolid.errors",
    "UsageError": "rocsolid.errors",
    "VendorOp": "rocsolid.ops.vendor_op",
    "VendorOpError": "rocsolid.errors",
    "Verdict": "rocsolid.model.timing",
    "Verify": "rocsolid.runtime.capture.options",
    "VerifyReport": "rocsolid.model.verify_report",
    "ab": "rocsolid.api.tune",
    "apply": "rocsolid.api.safety",
    "audit_op": "rocsolid.ops.audit_op",
    "breaks": "rocsolid.api.observe",
    "capture": "rocsolid.api.capture",
    "check": "rocsolid.api.probe",
    "compare": "rocsolid.api.trace",
    "compile": "rocsolid.api.safety",
    "compiles": "rocsolid.api.observe",
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
    "profile": "rocsolid.api.profile",
    "record_compiles": "rocsolid.api.observe",
    "resolve": "rocsolid.api.probe",
    "trace": "rocsolid.api.trace",
    "tune": "rocsolid.api.tune",
    "vendor_op": "rocsolid.ops.vendor_op",
    "verify": "rocsolid.api.verify",
}
# These may change in any release; their docstrings say so.
_EXPERIMENTAL = frozenset({"audit_op", "patch_calls", "pretend"})
__all__ = sorted(_HOMES)  # noqa: PLE0605 - a list of strings


class _Package(ModuleType):
    """Loads names on first use. Importing the sub-package `rocsolid.probe` must not hide the function `rs.probe`."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any public name
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
