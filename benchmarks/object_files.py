"""Read AMD object files (ELF), to check independently what the dry run reads from the assembly."""
# ruff: noqa: PLR2004 - tags of a format have no better names

import struct
from collections.abc import Iterator
from typing import Any, Final

_NOTE: Final = 7
_SYMBOLS: Final = (2, 11)
_FUNCTION: Final = 2
_AMD_METADATA: Final = 32


def sections(elf: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Type, offset, size and link of each section of a 64-bit ELF file."""
    offset, size, count = struct.unpack_from("<Q", elf, 0x28)[0], *struct.unpack_from("<HH", elf, 0x3A)
    for number in range(count):
        kind, start, length, link = struct.unpack_from("<4xI16xQQI", elf, offset + number * size)
        yield kind, start, length, link


def metadata(elf: bytes) -> Any:
    """The AMD metadata note, decoded from MessagePack."""
    for kind, start, _, _ in sections(elf):
        if kind == _NOTE:
            name_size, _, note_kind = struct.unpack_from("<III", elf, start)
            if note_kind == _AMD_METADATA:
                return unpack(elf, start + 12 + (name_size + 3) // 4 * 4)[0]
    msg = "the file has no AMD metadata note"
    raise ValueError(msg)


def code_bytes(elf: bytes, name: str) -> int:
    """Size of the function, from the symbol table; -1 if it is not there."""
    table = list(sections(elf))
    for kind, start, length, link in table:
        if kind not in _SYMBOLS:
            continue
        names = table[link][1]
        for at in range(start, start + length, 24):
            label, info, size = struct.unpack_from("<IB11xQ", elf, at)
            if info & 0xF == _FUNCTION and elf[names + label :].split(b"\0", 1)[0].decode() == name:
                return int(size)
    return -1


def unpack(data: bytes, at: int) -> tuple[Any, int]:
    """Decode the parts of MessagePack that the note uses; returns the value and the offset after it."""
    tag = data[at]
    if tag < 0x80:
        return tag, at + 1
    if tag >= 0xE0:
        return tag - 256, at + 1
    if tag in (0xC0, 0xC2, 0xC3):
        return {0xC0: None, 0xC2: False, 0xC3: True}[tag], at + 1
    if tag in (0xCC, 0xCD, 0xCE, 0xCF):
        width = 1 << (tag - 0xCC)
        return int.from_bytes(data[at + 1 : at + 1 + width], "big"), at + 1 + width
    if 0xA0 <= tag < 0xC0 or tag in (0xD9, 0xDA):
        width = {0xD9: 1, 0xDA: 2}.get(tag, 0)
        length = int.from_bytes(data[at + 1 : at + 1 + width], "big") if width else tag & 0x1F
        begin = at + 1 + width
        return data[begin : begin + length].decode(), begin + length
    is_map = tag < 0x90 or tag == 0xDE
    wide = tag in (0xDC, 0xDE)
    items = int.from_bytes(data[at + 1 : at + 3], "big") if wide else tag & 0x0F
    at += 3 if wide else 1
    flat = []
    for _ in range(items * 2 if is_map else items):
        value, at = unpack(data, at)
        flat.append(value)
    return (dict(zip(flat[::2], flat[1::2], strict=True)) if is_map else flat), at
