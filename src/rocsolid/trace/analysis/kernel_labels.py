"""Short names that tell kernels apart: the tile of a Tensile kernel, and the words of a mangled C++ name."""

import re
from collections import Counter
from collections.abc import Iterable
from typing import Final

_TENSILE: Final = re.compile(r"^(?:Custom_)?Cijk_(?P<layout>A[a-z]+_B[a-z]+)_(?P<types>[A-Z0-9]+)")
_TILE: Final = re.compile(r"_MT(\d+x\d+x\d+)")
_DIGITS: Final = re.compile(r"\d+")
_NO_IDENTIFIER: Final = re.compile(r"L[a-z]\d+E|DF\d+[b_]?|")
_MAX_WORDS: Final = 4


def kernel_labels(names: Iterable[str]) -> dict[str, str]:
    """Return a label for each name that is hard to read. Two names never have the same label."""
    labels = {name: label for name in names if (label := _label(name))}
    repeated = {label for label, count in Counter(labels.values()).items() if count > 1}
    for label in repeated:
        same = [name for name in labels if labels[name] == label]
        parts = {name: name.split("_") for name in same}
        common = set.intersection(*(set(words) for words in parts.values()))
        for number, name in enumerate(sorted(same), 1):
            different = " ".join([word for word in parts[name] if word not in common][:_MAX_WORDS])
            labels[name] = f"{label} {different or f'#{number}'}"
    for label, count in Counter(labels.values()).items():  # the first words that differ can still be equal
        if count > 1:
            for number, name in enumerate(sorted(name for name in labels if labels[name] == label), 1):
                labels[name] = f"{label} #{number}"
    return labels


def _label(name: str) -> str:
    tensile = _TENSILE.match(name)
    if tensile:
        tile = _TILE.search(name)
        return f"Tensile {tensile['layout']} {tensile['types']}" + (f" MT{tile[1]}" if tile else "")
    if name.startswith("Cijk_"):  # a kernel that adds up parts, such as Cijk_SB_BiasS_HAS_ScaleAlphaVec_PostGSU4_VW4
        return f"Tensile {' '.join(name.split('_')[-2:])}"
    if name.startswith("_Z"):
        words = _mangled_words(name)
        return "::".join(words[:2]) + "".join(f" {word}" for word in words[2:_MAX_WORDS])
    return ""


def _mangled_words(name: str) -> list[str]:
    """Return the identifiers of a mangled C++ name; each is written after its length."""
    words: list[str] = []
    position = 2
    while position < len(name) and len(words) < _MAX_WORDS:
        digits = _DIGITS.match(name, position)
        if digits and int(digits[0][:4]) <= len(name) - digits.end() and (words or name[position - 1] in "NZ"):
            end = digits.end() + int(digits[0][:4])
            word = name[digits.end() : end]
            if re.fullmatch(r"[A-Za-z_]\w*", word):
                words += [word] if not word.startswith("_GLOBAL__N") else []
                position = end
                continue
        # A number as a template argument, such as Li16E, and a type with its width, such as DF16b, are no identifiers.
        skip = _NO_IDENTIFIER.match(name, position)
        position = max(skip.end() if skip else 0, position + 1)
    return words
