"""What `rs.optimize` did to a program of another library, such as `model.generate(...)` of transformers."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ProgramPart:
    """One part of a program: optimized or left as it was, and why."""

    name: str
    optimized: bool
    detail: str

    def __str__(self) -> str:
        return f"{'optimized' if self.optimized else 'unchanged'}  {self.name}: {self.detail}"


@dataclass(frozen=True, kw_only=True)
class ProgramReport:
    """The parts of a program that `rs.optimize` made faster, and those that it left alone, with reasons."""

    name: str
    parts: tuple[ProgramPart, ...]

    def __str__(self) -> str:
        return "\n".join((self.name, *(f"  {part}" for part in self.parts)))
