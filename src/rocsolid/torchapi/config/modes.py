"""The options that a `mode=` of `torch.compile` sets, and the settings that `options=` accepts."""

from collections.abc import Mapping
from typing import Final

from rocsolid.torchapi.private_api import private_name

_MODES = private_name(
    "torch._inductor", "list_mode_options", "2.4..", without="rs.compile: modes are those of torch 2.13"
)
_COPY = private_name(
    "torch._inductor.config",
    "get_config_copy",
    "2.4..",
    without="rs.compile: options of other torch releases are not dropped",
)
_MODES_OF_2_13: Final[Mapping[str, Mapping[str, object]]] = {
    "default": {},
    "reduce-overhead": {"triton.cudagraphs": True},
    "max-autotune-no-cudagraphs": {"max_autotune": True, "coordinate_descent_tuning": True},
    "max-autotune": {"max_autotune": True, "triton.cudagraphs": True, "coordinate_descent_tuning": True},
}


def mode_options(mode: str, *, dynamic: bool | None) -> dict[str, object]:
    """Return the options that a mode sets; for an unknown mode torch raises an error that lists the modes."""
    list_mode_options = _MODES.find()
    if list_mode_options is None:
        return dict(_MODES_OF_2_13.get(mode, {}))
    return dict(list_mode_options(mode, dynamic))


def accepted_options(names: set[str]) -> set[str]:
    """Keep the names that `torch.compile(options=...)` accepts in this torch; aliases and names of other releases are dropped."""
    get_config_copy = _COPY.find()
    return names & get_config_copy().keys() if get_config_copy is not None else names
