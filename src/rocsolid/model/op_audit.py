"""The result of `rs.audit_op`."""

from dataclasses import dataclass

from rocsolid.model.finding import Finding, Severity
from rocsolid.model.notebook import NotebookResult


@dataclass(frozen=True, kw_only=True)
class OpAudit(NotebookResult):
    """Whether an operator can be compiled and captured, and what prevents it."""

    name: str
    schema: str
    has_fake: bool
    has_gradient: bool
    writes: tuple[str, ...]  # arguments that the schema marks as written
    devices: tuple[str, ...]  # device types with a kernel
    tags: tuple[str, ...]
    captured: bool | None  # whether a captured graph replayed correctly; None if that was not tried
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing prevents compiling and capturing the operator."""
        return all(f.severity is Severity.INFO for f in self.findings)

    def __str__(self) -> str:
        verdict = "can be compiled and captured" if self.ok else "has problems in compiled or captured code"
        trial = {True: " (captured and replayed correctly)", False: " (capture failed)", None: ""}[self.captured]
        first_line = f"{self.name}: {verdict}{trial}"
        return "\n".join(
            [first_line, f"  {self.schema}", *(f"  {f.code} {f.message}\n    fix: {f.fix}" for f in self.findings)]
        )
