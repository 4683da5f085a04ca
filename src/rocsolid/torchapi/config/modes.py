"""What a mode stands for, and which settings `torch.compile` takes as options."""

from collections.abc import Mapping

from rocsolid.torchapi.private_api import door

_MODES = door("torch._inductor", "list_mode_options", "2.4..")
_COPY = door("torch._inductor.config", "get_config_copy", "2.4..")


def expand(mode: str, *, dynamic: bool | None) -> dict[str, object]:
    """The options a mode stands for; raises torch's own error, which lists the modes, for one that is none."""
    options: Mapping[str, object] = _MODES.reach()(mode, dynamic)
    return dict(options)


def accepted(names: set[str]) -> set[str]:
    """Those that `torch.compile(options=...)` takes on this torch; aliases and names of other releases are none."""
    known: Mapping[str, object] = _COPY.reach()()
    return names & known.keys()
