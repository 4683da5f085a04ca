"""The options that a `mode=` of `torch.compile` sets, and the settings that `options=` accepts."""

from collections.abc import Mapping

from rocsolid.torchapi.private_api import private_name

_MODES = private_name("torch._inductor", "list_mode_options", "2.4..")
_COPY = private_name("torch._inductor.config", "get_config_copy", "2.4..")


def mode_options(mode: str, *, dynamic: bool | None) -> dict[str, object]:
    """Return the options that a mode sets; for an unknown mode torch raises an error that lists the modes."""
    options: Mapping[str, object] = _MODES.get()(mode, dynamic)
    return dict(options)


def accepted_options(names: set[str]) -> set[str]:
    """Keep the names that `torch.compile(options=...)` accepts in this torch; aliases and names of other releases are dropped."""
    inductor_config: Mapping[str, object] = _COPY.get()()
    return names & inductor_config.keys()
