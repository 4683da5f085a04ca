"""Sets a plan's values for a block or for the process, and restores the previous values."""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from enum import Enum
from types import TracebackType

from rocsolid.model.plan import Plan
from rocsolid.model.setting import Channel
from rocsolid.runtime.guard import Guard
from rocsolid.torchapi.config.live import imported_modules, read_entries
from rocsolid.torchapi.config.scope import settings_scope_if_imported


class Effect(Enum):
    """What happened to one value when the plan was applied."""

    ALREADY = "already set"
    SET = "set"
    PINNED = "enforced (later changes are refused)"
    LATER = "will be set when torch's compiler is imported"
    ARGUMENT = "not set: it is an argument of torch.compile; use rs.compile"
    PROCESS = "not set: it must be in the environment before the process starts; use rocsolid env or rocsolid run"


@dataclass(kw_only=True)
class Applied:
    """An applied plan: `with rs.apply(plan):` for a block, `rs.apply(plan).keep()` for the process."""

    plan: Plan

    def __post_init__(self) -> None:
        self._guard = Guard(self.plan)
        self._scope = ExitStack()
        self.effects: Mapping[str, Effect] = {}

    def __enter__(self) -> "Applied":
        return self.keep()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.undo()

    def keep(self) -> "Applied":
        """Apply the plan until `undo` or until the process ends: in every thread, and replacing values that this thread has assigned."""
        if not self._guard.active:
            self.effects = self._predict_effects()
            self._guard.keep()
            self._scope.enter_context(
                settings_scope_if_imported(
                    {d.id: d.value for d in self.plan if d.channel in (Channel.OPTION, Channel.SCOPE)}
                )
            )
        return self

    def undo(self) -> None:
        """Restore the previous values."""
        self._scope.close()
        self._guard.undo()

    def _predict_effects(self) -> dict[str, Effect]:
        entries = read_entries(imported_modules())
        effects = {}
        for decision in self.plan:
            if decision.channel is Channel.PROCESS:
                effect = Effect.PROCESS
            elif decision.channel is Channel.ARGUMENT:
                effect = Effect.ARGUMENT
            elif decision.id not in entries:
                effect = Effect.LATER
            elif decision.guard:
                effect = Effect.PINNED
            else:
                effect = Effect.ALREADY if entries[decision.id].value == decision.value else Effect.SET
            effects[decision.id] = effect
        return effects

    def __str__(self) -> str:
        width = max((len(f"{d.id} = {d.value!r}") for d in self.plan), default=0)
        rows = [
            f"  {f'{d.id} = {d.value!r}':<{width}}  {self.effects[d.id].value if d.id in self.effects else 'not applied'}"
            for d in self.plan
        ]
        return "\n".join([f"profile {self.plan.profile} applied", *rows])
