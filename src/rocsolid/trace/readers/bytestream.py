"""Reads the bytes of a plain or gzip file in chunks of limited size. If gzip data is damaged, the text before it is read."""

import queue
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from rocsolid.errors import InputError

CHUNK_BYTES: Final = 1 << 19  # small enough that what is decoded from it stays in the CPU cache
_SMALL_CHUNK_BYTES: Final = 1 << 16  # at most this much text before broken gzip data is lost
_PACKED_BYTES: Final = (
    1 << 16
)  # compressed bytes per read; small, because the unused rest is copied for each chunk of text
_GZIP_MAGIC: Final = b"\x1f\x8b"
# A trace compresses 10 to 60 times. A file beyond this ratio, after this much text, is a decompression bomb.
_BOMB_RATIO: Final = 400
_BOMB_MIN_BYTES: Final = 256 << 20


class ByteStream:
    """Iterates over the chunks of a file, from offset `first` to `last`.

    Afterwards, `damage` is the reason if the file could not be read to its end; otherwise it is empty.
    `read_ahead` decompresses in a thread. It does not help when all cores are already busy.
    """

    def __init__(
        self,
        file: Path,
        *,
        first: int = 0,
        last: int | None = None,
        read_ahead: bool = True,
        bomb_ratio: int = _BOMB_RATIO,
        bomb_min_bytes: int = _BOMB_MIN_BYTES,
    ) -> None:
        self._bomb_ratio, self._bomb_min_bytes = bomb_ratio, bomb_min_bytes
        self.file = file
        self.read_ahead = read_ahead
        self.damage = ""
        self._first = first
        self._last = last

    def __iter__(self) -> Iterator[bytes]:
        try:
            if is_gzip(self.file):
                # Decompressing releases the GIL, so a thread can do it while this one decodes.
                yield from read_in_thread(self._decompressed()) if self.read_ahead else self._decompressed()
            else:
                yield from self._plain(CHUNK_BYTES)
        except OSError as error:
            msg = f"cannot read {self.file}: {error.strerror or error}"
            raise InputError(msg) from error

    def _plain(self, size: int) -> Iterator[bytes]:
        with self.file.open("rb") as source:
            source.seek(self._first)
            offset = self._first
            while chunk := source.read(size if self._last is None else min(size, self._last - offset)):
                offset += len(chunk)
                yield chunk

    def _decompressed(self) -> Iterator[bytes]:
        collected: list[bytes] = []
        size = 0
        for text in self._decompressed_chunks(CHUNK_BYTES):
            collected.append(text)
            size += len(text)
            if size >= CHUNK_BYTES // 2:
                yield collected[0] if len(collected) == 1 else b"".join(collected)
                collected, size = [], 0
        if collected:
            yield b"".join(collected)

    def _decompressed_chunks(self, chunk_bytes: int) -> Iterator[bytes]:
        """Yield the decompressed text in chunks of at most `chunk_bytes`."""
        decompressor, packed_bytes, text_bytes = _decompressor(), 0, 0
        for packed in self._plain(_PACKED_BYTES):
            packed_bytes += len(packed)
            while packed:
                if decompressor.eof:
                    decompressor = _decompressor()
                try:
                    text = decompressor.decompress(packed, chunk_bytes)
                except Exception as broken:  # noqa: BLE001 - zlib and isal raise errors of their own
                    if chunk_bytes > _SMALL_CHUNK_BYTES:  # read again in small chunks, so that less text is lost
                        yield from _skip(self._decompressed_chunks(_SMALL_CHUNK_BYTES), text_bytes)
                        return
                    self.damage = f"the gzip data is broken after {text_bytes:,} decompressed bytes ({broken})"
                    return
                packed = decompressor.unused_data if decompressor.eof else decompressor.unconsumed_tail  # noqa: PLW2901
                text_bytes += len(text)
                if text_bytes > self._bomb_min_bytes and text_bytes > self._bomb_ratio * packed_bytes:
                    self.damage = (
                        f"the gzip data decompresses to more than {self._bomb_ratio} times its size; reading stopped"
                    )
                    return
                if text:
                    yield text
                elif not decompressor.eof:
                    break
        if not decompressor.eof:
            self.damage = f"the gzip data ends early, after {text_bytes:,} decompressed bytes"


def _skip(texts: Iterator[bytes], count: int) -> Iterator[bytes]:
    """Yield the texts without their first `count` bytes."""
    for text in texts:
        if count < len(text):
            yield text[count:]
        count = max(0, count - len(text))


def read_in_thread(chunks: Iterator[bytes], depth: int = 4) -> Iterator[bytes]:
    """Yield the same chunks, produced by a thread up to `depth` chunks ahead. Its exceptions are raised here."""
    ready: queue.Queue[bytes | BaseException | None] = queue.Queue(maxsize=depth)
    stop = threading.Event()

    def produce() -> None:
        last: BaseException | None = None
        try:
            for chunk in chunks:
                if not _put(ready, chunk, stop):
                    return
        except BaseException as error:  # noqa: BLE001 - raised again in the consumer
            last = error
        _put(ready, last, stop)

    thread = threading.Thread(target=produce, name="unpack", daemon=True)
    thread.start()
    try:
        while (chunk := ready.get()) is not None:
            if isinstance(chunk, BaseException):
                raise chunk
            yield chunk
    finally:
        stop.set()
        thread.join()


def _put(
    ready: "queue.Queue[bytes | BaseException | None]", item: bytes | BaseException | None, stop: threading.Event
) -> bool:
    """Put an item into the queue when it has room. Return False when the consumer has stopped."""
    while not stop.is_set():
        try:
            ready.put(item, timeout=0.05)
        except queue.Full:
            continue
        return True
    return False


def is_gzip(file: Path) -> bool:
    """Return whether a file is gzip, from its first bytes."""
    try:
        with file.open("rb") as source:
            return source.read(2) == _GZIP_MAGIC
    except OSError as error:
        msg = f"cannot read {file}: {error.strerror or error}"
        raise InputError(msg) from error


def first_bytes(file: Path, size: int = 1 << 16) -> bytes:
    """Return the first bytes of the decompressed text."""
    return next(iter(ByteStream(file, read_ahead=False)), b"")[:size]


def _decompressor() -> Any:  # noqa: ANN401 - two libraries with one interface
    try:
        from isal import isal_zlib
    except ImportError:
        return zlib.decompressobj(31)
    return isal_zlib.decompressobj(31)
