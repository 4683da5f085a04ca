"""The bytes of a file, plain or gzip, in pieces of bounded size; what is damaged ends early and says so."""

import queue
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from rocsolid.errors import InputError

PIECE: Final = 1 << 19  # small enough that what is decoded from it stays in the cache
_BIT: Final = 1 << 16  # what is lost at most before the place where gzip data are broken
_PACKED: Final = 1 << 16  # what is left of it is copied for every bit, so it is short
_GZIP: Final = b"\x1f\x8b"
# A trace shrinks 10 to 60 times. Beyond this, after this much text, it is no trace but a trap.
_BOMB_RATIO: Final = 400
_BOMB_AFTER: Final = 256 << 20


class ByteStream:
    """Iterates over the pieces of a file; afterwards `damage` says why it ended early, if it did."""

    def __init__(self, file: Path, *, first: int = 0, last: int | None = None, alone: bool = False) -> None:
        self.file = file
        self.alone = alone  # with no thread beside; where every core is busy anyway, one costs and gains nothing
        self.damage = ""
        self.text_bytes = 0
        self._first = first
        self._last = last

    def __iter__(self) -> Iterator[bytes]:
        try:
            # Unpacking releases the interpreter, so it runs beside the decoding.
            unpacked = self._unpacked() if self.alone else ahead(self._unpacked())
            pieces = unpacked if is_gzip(self.file) else self._plain(PIECE)
            for piece in pieces:
                self.text_bytes += len(piece)
                yield piece
        except OSError as refused:
            msg = f"cannot read {self.file}: {refused.strerror or refused}"
            raise InputError(msg) from refused

    def _plain(self, size: int) -> Iterator[bytes]:
        with self.file.open("rb") as source:
            source.seek(self._first)
            at = self._first
            while piece := source.read(size if self._last is None else min(size, self._last - at)):
                at += len(piece)
                yield piece

    def _unpacked(self) -> Iterator[bytes]:
        gathered: list[bytes] = []
        size = 0
        for text in self._unpacked_bits(PIECE):
            gathered.append(text)
            size += len(text)
            if size >= PIECE // 2:
                yield gathered[0] if len(gathered) == 1 else b"".join(gathered)
                gathered, size = [], 0
        if gathered:
            yield b"".join(gathered)

    def _unpacked_bits(self, bit: int) -> Iterator[bytes]:
        """Text of at most `bit` bytes at a time."""
        unpacker, packed_bytes, given = _unpacker(), 0, 0
        for packed in self._plain(_PACKED):
            packed_bytes += len(packed)
            while packed:
                if unpacker.eof:
                    unpacker = _unpacker()
                try:
                    text = unpacker.decompress(packed, bit)
                except Exception as broken:  # noqa: BLE001 - zlib and isal raise errors of their own
                    if bit > _BIT:  # once more, in smaller bits, to lose no more than one of those
                        yield from _behind(self._unpacked_bits(_BIT), given)
                        return
                    self.damage = f"the gzip data are broken after {given:,} bytes of text ({broken})"
                    return
                packed = unpacker.unused_data if unpacker.eof else unpacker.unconsumed_tail  # noqa: PLW2901
                given += len(text)
                if given > _BOMB_AFTER and given > _BOMB_RATIO * packed_bytes:
                    self.damage = f"the gzip data unpack to more than {_BOMB_RATIO} times their size; reading stopped"
                    return
                if text:
                    yield text
                elif not unpacker.eof:
                    break
        if not unpacker.eof:
            self.damage = f"the gzip data end early, after {given:,} bytes of text"


def _behind(texts: Iterator[bytes], given: int) -> Iterator[bytes]:
    """What comes after so many bytes."""
    for text in texts:
        if given < len(text):
            yield text[given:]
        given = max(0, given - len(text))


def ahead(pieces: Iterator[bytes], depth: int = 4) -> Iterator[bytes]:
    """The same pieces, fetched by a thread that runs a little ahead; its errors arrive here."""
    waiting: queue.Queue[bytes | BaseException | None] = queue.Queue(maxsize=depth)
    stop = threading.Event()

    def fetch() -> None:
        last: BaseException | None = None
        try:
            for piece in pieces:
                if not _put(waiting, piece, stop):
                    return
        except BaseException as error:  # noqa: BLE001 - raised again where the pieces are used
            last = error
        _put(waiting, last, stop)

    thread = threading.Thread(target=fetch, name="unpack", daemon=True)
    thread.start()
    try:
        while (piece := waiting.get()) is not None:
            if isinstance(piece, BaseException):
                raise piece
            yield piece
    finally:
        stop.set()
        thread.join()


def _put(
    waiting: "queue.Queue[bytes | BaseException | None]", item: bytes | BaseException | None, stop: threading.Event
) -> bool:
    """Wait for room, unless nobody is waiting for us any more."""
    while not stop.is_set():
        try:
            waiting.put(item, timeout=0.05)
        except queue.Full:
            continue
        return True
    return False


def is_gzip(file: Path) -> bool:
    """Whether a file is compressed, whatever it is called."""
    try:
        with file.open("rb") as source:
            return source.read(2) == _GZIP
    except OSError as refused:
        msg = f"cannot read {file}: {refused.strerror or refused}"
        raise InputError(msg) from refused


def first_bytes(file: Path, size: int = 1 << 16) -> bytes:
    """The beginning of the text of a file."""
    return next(iter(ByteStream(file, alone=True)), b"")[:size]


def _unpacker() -> Any:  # noqa: ANN401 - two libraries, one interface
    try:
        from isal import isal_zlib
    except ImportError:
        return zlib.decompressobj(31)
    return isal_zlib.decompressobj(31)
