"""The logger of the package. Secrets in its lines are hidden."""

import logging
import traceback
from typing import Final

log: Final = logging.getLogger("rocsolid")


def _hide_secrets(record: logging.LogRecord) -> bool:
    from rocsolid.model.redact import redact  # most programs log nothing

    text = record.getMessage()
    if (hidden := redact(text)) != text:
        record.msg, record.args = hidden, ()
    if record.exc_info:
        record.exc_text = redact("".join(traceback.format_exception(*record.exc_info))).rstrip("\n")
    return True


log.addFilter(_hide_secrets)
