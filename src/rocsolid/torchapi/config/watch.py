"""Records the file and line of every assignment to torch's config modules, starting when torch is imported."""

import sys
from dataclasses import dataclass
from types import FrameType, ModuleType
from typing import Any, Final

from rocsolid.torchapi.config.live import MODULES
from rocsolid.torchapi.import_hooks import Cancel, when_imported

_CONFIG_MACHINERY: Final = "torch.utils._config_module"
_OWNERS: Final = {module: owner for owner, module in MODULES.items()}


@dataclass(frozen=True, kw_only=True)
class Write:
    """One assignment to a config entry."""

    id: str
    value: object
    location: str  # file:line of the code that assigned
    phase: str  # when it happened: "startup", "torch", "import vllm"


class ConfigWatch:
    """Records every assignment to a config module inside a `with` block.

    Torch need not be imported yet: the hook is installed when `torch.utils._config_module` is imported.
    """

    def __init__(self) -> None:
        self.writes: list[Write] = []
        self.phase = ""
        self._cancel_import_hook: Cancel = lambda: None
        self._undo: tuple[Any, Any] | None = None

    def __enter__(self) -> "ConfigWatch":
        self._cancel_import_hook = when_imported(_CONFIG_MACHINERY, self._attach)
        return self

    def __exit__(self, *failure: object) -> None:
        self._cancel_import_hook()
        if self._undo:
            config_class, original = self._undo
            config_class.__setattr__ = original
            self._undo = None

    def _attach(self, module: ModuleType) -> None:
        config_class: Any = vars(module)["ConfigModule"]
        original = config_class.__setattr__

        def recording_setattr(config: Any, name: str, value: object) -> None:
            original(config, name, value)
            owner = _OWNERS.get(config.__name__)
            if owner and name in config._config:
                location = _location(sys._getframe(1))
                self.writes.append(Write(id=f"{owner}.{name}", value=value, location=location, phase=self.phase))

        config_class.__setattr__ = recording_setattr
        self._undo = (config_class, original)


def _location(frame: FrameType | None) -> str:
    """Return `file:line` of the innermost frame outside torch's config module code."""
    while frame is not None and frame.f_code.co_filename.replace("\\", "/").endswith("torch/utils/_config_module.py"):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame else "unknown"
