"""What an answer of the runtime is in the words of the table."""

from collections.abc import Mapping
from typing import Any

from rocsolid.model.capture_rule import Answer, Outcome


def agrees(answer: Answer, seen: Mapping[str, Any]) -> bool:
    """Whether a cell says what was seen. Whether a call that left no node was meant to leave one, no runtime can tell."""
    given = seen.get("returned"), seen.get("state"), seen.get("ended")
    match answer.outcome:
        case Outcome.RECORDED:
            return given == (0, "active", 0) and seen["nodes"] > 1  # one kernel is in every capture
        case Outcome.DONE | Outcome.LEFT_OUT:
            return given in ((0, "active", 0), (0, "none", None)) and seen["nodes"] == 1
        case Outcome.REFUSED:
            return given == (answer.error, "invalidated", 901)
        case Outcome.REJECTED:
            return given == (answer.error, "active", 0)
        case Outcome.UNENDED:
            return given == (0, "active", answer.error)
        case Outcome.UNKNOWN:
            return True
