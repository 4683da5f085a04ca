"""What is done with more care because of what is known of this platform."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

_log = logging.getLogger("rocsolid")
_warned: set[str] = set()


@dataclass(frozen=True, kw_only=True)
class Care:
    """Handed down by whoever knows the platform."""

    trial: Callable[..., str] | None = None  # captures a call elsewhere first; says what went wrong
    watchdog: str = ""  # what happens to captures beside collectives here

    def warn_of_watchdog(self) -> None:
        """Say once that collectives of this process may break a capture."""
        if self.watchdog and self.watchdog not in _warned and _has_collectives():
            _warned.add(self.watchdog)
            _log.warning("%s", self.watchdog)


def _has_collectives() -> Any:
    distributed = torch.distributed
    return distributed.is_available() and distributed.is_initialized() and "nccl" in distributed.get_backend()
