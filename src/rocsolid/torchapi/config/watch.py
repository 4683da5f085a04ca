"""Notes who assigns to torch's config modules, by file and line, from the moment torch is imported."""

import sys
from dataclasses import dataclass
from types import FrameType, ModuleType
from typing import Any, Final

from rocsolid.torchapi.config.live import MODULES
from rocsolid.torchapi.import_hooks import Cancel, when_imported

_MACHINERY: Final = "torch.utils._config_module"
_OWNERS: Final = {module: owner for owner, module in MODULES.items()}


@dataclass(frozen=True, kw_only=True)
class Write:
    """One assignment to a config entry."""

    id: str
    value: object
    place: str  # file:line of the code that assigned
    phase: str  # what was going on: "startup", "torch", "import vllm"


class Watch:
    """Records every assignment to a config module until it is closed.

    Torch need not be imported yet: the watch lies in wait for the module that holds the machinery.
    """

    def __init__(self) -> None:
        self.writes: list[Write] = []
        self.phase = ""
        self._cancel: Cancel = lambda: None
        self._undo: tuple[Any, Any] | None = None

    def __enter__(self) -> "Watch":
        self._cancel = when_imported(_MACHINERY, self._attach)
        return self

    def __exit__(self, *failure: object) -> None:
        self._cancel()
        if self._undo:
            config_class, plain = self._undo
            config_class.__setattr__ = plain
            self._undo = None

    def _attach(self, module: ModuleType) -> None:
        config_class: Any = vars(module)["ConfigModule"]
        plain = config_class.__setattr__

        def noted(config: Any, name: str, value: object) -> None:
            plain(config, name, value)
            owner = _OWNERS.get(config.__name__)
            if owner and name in config._config:
                place = _place(sys._getframe(1))
                self.writes.append(Write(id=f"{owner}.{name}", value=value, place=place, phase=self.phase))

        config_class.__setattr__ = noted
        self._undo = (config_class, plain)


def _place(frame: FrameType | None) -> str:
    """The nearest frame that is not torch's own config machinery."""
    while frame is not None and frame.f_code.co_filename.replace("\\", "/").endswith("torch/utils/_config_module.py"):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame else "unknown"
