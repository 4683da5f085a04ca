"""What was found out about an operator."""

from dataclasses import dataclass

from rocsolid.model.finding import Finding, Severity


@dataclass(frozen=True, kw_only=True)
class OpAudit:
    """Whether an operator is fit for compile and for capture."""

    name: str
    schema: str
    has_fake: bool
    has_gradient: bool
    writes: tuple[str, ...]  # arguments it declares to write to
    devices: tuple[str, ...]  # where it has a kernel
    tags: tuple[str, ...]
    captured: bool | None  # replayed rightly from a device graph; None when that was not tried
    findings: tuple[Finding, ...]

    @property
    def fit(self) -> bool:
        """Nothing stands in the way of compiling and capturing it."""
        return all(f.severity is Severity.INFO for f in self.findings)

    def __str__(self) -> str:
        tried = {True: ", captured and replayed", False: ", not capturable", None: ""}[self.captured]
        head = f"{self.name}: {'fit' if self.fit else 'not fit'} for compile and capture{tried}"
        return "\n".join(
            [head, f"  {self.schema}", *(f"  {f.code} {f.message}\n    fix: {f.fix}" for f in self.findings)]
        )
