"""Records the file and line of every assignment to torch's config modules, starting when torch is imported."""

import sys
from dataclasses import dataclass
from types import FrameType, ModuleType
from typing import Any, Final

from rocsolid.torchapi.config.live import CONFIG_MACHINERY, MODULES, entries_in
from rocsolid.torchapi.import_hooks import Cancel, when_imported
from rocsolid.torchapi.private_api import AttributePatch, private_name

SETATTR = private_name(
    CONFIG_MACHINERY,
    "ConfigModule.__setattr__",
    "2.0..",
    without="rocsolid probe --live, rs.guard: assignments to torch's config are not seen",
)
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
        self._patch: AttributePatch | None = None

    def __enter__(self) -> "ConfigWatch":
        self._cancel_import_hook = when_imported(SETATTR.module, self._attach)
        return self

    def __exit__(self, *failure: object) -> None:
        self._cancel_import_hook()
        if self._patch is not None:
            self._patch.undo()
            self._patch = None

    def _attach(self, _module: ModuleType) -> None:
        def wrap(original: Any) -> Any:
            def recording_setattr(config: Any, name: str, value: object) -> None:
                original(config, name, value)
                owner = _OWNERS.get(config.__name__)
                if owner and name in entries_in(config):
                    location = _location(sys._getframe(1))
                    self.writes.append(Write(id=f"{owner}.{name}", value=value, location=location, phase=self.phase))

            return recording_setattr

        self._patch = SETATTR.patch(wrap)


def _location(frame: FrameType | None) -> str:
    """Return `file:line` of the innermost frame outside torch's config module code."""
    while frame is not None and frame.f_code.co_filename.replace("\\", "/").endswith("torch/utils/_config_module.py"):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame else "unknown"
