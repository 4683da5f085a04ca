"""The output of a trial: a file with a size limit, whose end is never lost.

The trial's processes write to the file while it is trimmed. So trimming frees the disk space of the beginning, and leaves the rest of
the file where it is. The file is shortened when the last process has ended.
"""

import ctypes
import os
from pathlib import Path
from typing import Final

_TAIL_BYTES: Final = 64 * 1024
_KEEP_SIZE, _PUNCH_HOLE = 1, 2  # flags of fallocate(2)


class Log:
    """The file that a trial uses as stdout and stderr.

    It is a file and not a pipe, so that much output does not block the trial, and a process that is left over does not keep a pipe
    open.
    """

    def __init__(self, file: Path, max_bytes: int) -> None:
        self.fd = os.open(file, os.O_CREAT | os.O_RDWR | os.O_APPEND, 0o644)
        self.dropped_bytes = 0
        self._max_bytes = max_bytes
        self._freed_bytes = 0  # at the beginning; they use no disk space

    def trim(self) -> None:
        """Keep the file below its limit while the trial still writes to it."""
        size = os.fstat(self.fd).st_size
        if size - self._freed_bytes <= self._max_bytes:
            return
        beginning = max(0, size - _TAIL_BYTES)
        if free_beginning(self.fd, beginning):
            self._freed_bytes = beginning
        else:  # output written during the truncation is lost
            self._keep_tail()

    def finish(self) -> str:
        """Return the last part of the output, and shorten a file above the limit to that part. Call it when nothing writes any more."""
        if self._freed_bytes or os.fstat(self.fd).st_size > self._max_bytes:
            self._keep_tail()
        return self._tail().decode("utf-8", "replace")

    def _tail(self) -> bytes:
        return os.pread(self.fd, _TAIL_BYTES, max(0, os.fstat(self.fd).st_size - _TAIL_BYTES))

    def _keep_tail(self) -> None:
        tail = self._tail()
        self.dropped_bytes += os.fstat(self.fd).st_size - len(tail)
        self._freed_bytes = 0
        os.ftruncate(self.fd, 0)
        os.write(self.fd, f"[{self.dropped_bytes} bytes dropped]\n".encode() + tail)


def free_beginning(fd: int, count: int) -> bool:
    """Free the disk space of the first `count` bytes, which then read as zeros; False where the file system cannot do that."""
    allocate = getattr(ctypes.CDLL(None), "fallocate", None)
    if allocate is None:
        return False
    allocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    return bool(allocate(fd, _PUNCH_HOLE | _KEEP_SIZE, 0, count) == 0)
