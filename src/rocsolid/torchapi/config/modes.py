"""The options behind a `mode=` of `torch.compile`, and the settings that `options=` accepts."""

from collections.abc import Mapping

from rocsolid.torchapi.private_api import private

_MODES = private("torch._inductor", "list_mode_options", "2.4..")
_COPY = private("torch._inductor.config", "get_config_copy", "2.4..")


def mode_options(mode: str, *, dynamic: bool | None) -> dict[str, object]:
    """The options that a mode sets; an unknown mode raises torch's own error, which lists the modes."""
    options: Mapping[str, object] = _MODES.get()(mode, dynamic)
    return dict(options)


def accepted_options(names: set[str]) -> set[str]:
    """Keep the names that `torch.compile(options=...)` accepts in this torch; aliases and names of other releases are dropped."""
    known: Mapping[str, object] = _COPY.get()()
    return names & known.keys()
