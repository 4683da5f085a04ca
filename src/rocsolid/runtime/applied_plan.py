"""Sets a plan's values for a block or for the process, and takes them back."""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from enum import Enum
from types import TracebackType

from rocsolid.model.plan import Plan
from rocsolid.model.setting import Channel
from rocsolid.runtime.guard import Guard
from rocsolid.torchapi.config.live import loaded, read
from rocsolid.torchapi.config.scope import scoped_if_loaded


class Effect(Enum):
    """What applying a value amounts to."""

    ALREADY = "already so"
    SET = "set"
    PINNED = "pinned"
    LATER = "set when the compiler is imported"
    ARGUMENT = "an argument of torch.compile: use rs.compile"
    PROCESS = "must be in the environment before the process starts: rocsolid env, rocsolid run"


@dataclass(kw_only=True)
class Applied:
    """A plan in force: `with rs.apply(plan):` for a block, `rs.apply(plan).keep()` for the process."""

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
        """Apply until `undo`, or for the life of the process: in every thread, and over what this thread has assigned."""
        if not self._guard.up:
            self.effects = self._foreseen()
            self._guard.keep()
            self._scope.enter_context(
                scoped_if_loaded({d.id: d.value for d in self.plan if d.channel in (Channel.OPTION, Channel.SCOPE)})
            )
        return self

    def undo(self) -> None:
        """Everything as it was before."""
        self._scope.close()
        self._guard.undo()

    def _foreseen(self) -> dict[str, Effect]:
        values = read(loaded())
        effects = {}
        for decision in self.plan:
            if decision.channel is Channel.PROCESS:
                effect = Effect.PROCESS
            elif decision.channel is Channel.ARGUMENT:
                effect = Effect.ARGUMENT
            elif decision.id not in values:
                effect = Effect.LATER
            elif decision.guard:
                effect = Effect.PINNED
            else:
                effect = Effect.ALREADY if values[decision.id].value == decision.value else Effect.SET
            effects[decision.id] = effect
        return effects

    def __str__(self) -> str:
        width = max((len(f"{d.id} = {d.value!r}") for d in self.plan), default=0)
        rows = [
            f"  {f'{d.id} = {d.value!r}':<{width}}  {self.effects[d.id].value if d.id in self.effects else 'not applied'}"
            for d in self.plan
        ]
        return "\n".join([f"profile {self.plan.profile} applied", *rows])
