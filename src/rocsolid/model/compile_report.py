"""What was compiled and what ran in eager instead: the report of a function from `rs.compile`, and of a guard."""

from dataclasses import dataclass

from rocsolid.model.intervention import Intervention
from rocsolid.model.notebook import NotebookResult


@dataclass(frozen=True, kw_only=True)
class EagerFallback:
    """A function, or its rest after a graph break, that runs in eager although `torch.compile` was called."""

    function: str  # with file and line
    why: str

    def __str__(self) -> str:
        return f"{self.function}: {self.why}"


@dataclass(frozen=True, kw_only=True)
class CompileReport(NotebookResult):
    """Compiles, and everything that runs in eager instead; from `fn.rocsolid.report()` and `guard.report()`."""

    name: str
    compiles: int  # compiles that produced code, with recompiles
    recompiles: int
    eager: tuple[EagerFallback, ...] = ()
    interventions: tuple[Intervention, ...] = ()  # refused values
    refused_compiles: int = 0  # calls that ran in eager after `seal(otherwise="eager")`

    def counters(self) -> dict[str, int]:
        """Return flat numbers for a server's metrics, such as `rocsolid_compiles_total`."""
        return {
            "rocsolid_compiles_total": self.compiles,
            "rocsolid_recompiles_total": self.recompiles,
            "rocsolid_eager_fallbacks": len(self.eager),
            "rocsolid_refused_values": len(self.interventions),
            "rocsolid_refused_compiles_total": self.refused_compiles,
        }

    def __str__(self) -> str:
        counts = [_count(self.compiles, "compile"), _count(self.recompiles, "recompile")]
        counts += [_count(len(self.eager), "fallback") + " to eager", _count(len(self.interventions), "refused value")]
        counts += [_count(self.refused_compiles, "refused compile")] if self.refused_compiles else []
        lines = [f"{self.name}: {', '.join(counts)}"]
        lines += [f"  runs in eager: {fallback}" for fallback in self.eager]
        lines += [f"  {line}" for refused in self.interventions for line in str(refused).splitlines()]
        return "\n".join(lines)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
