"""Functions with graph breaks and recompiles for the golden messages. Line numbers appear in the golden files."""

import zlib
from typing import Any

import torch

SCALE = 2


def item(y: Any) -> Any:
    if y.sum().item() > 0:
        y = y * 2
    return y


def printing(y: Any) -> Any:
    y = y + 1
    print("y", y)  # noqa: T201
    return y * 2


def branch(y: Any) -> Any:
    if y.sum() > 0:
        return y * 2
    return y


def nonzero(y: Any) -> Any:
    return torch.nonzero(y).sum()


def unsupported_call(y: Any) -> Any:
    return y * zlib.crc32(b"abc")


def printing_in_a_loop(y: Any) -> Any:
    for _ in range(3):
        y = y + 1
        print("y", y)  # noqa: T201
    return y


def calls_a_loop(y: Any) -> Any:
    return printing_in_a_loop(y * 2) + 1


@torch.library.custom_op("golden::nofake", mutates_args=())
def no_fake(y: torch.Tensor) -> torch.Tensor:
    return y * 2


def without_fake(y: Any) -> Any:
    return torch.ops.golden.nofake(y + 1) + 1


def no_break(y: Any) -> Any:
    return y * 2


def scaled(y: Any, scale: Any) -> Any:
    return y * scale


class Counter(torch.nn.Module):  # type: ignore[misc]
    """Counts its calls in a Python int."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def forward(self, y: Any) -> Any:
        self.count += 1
        return y * self.count


def call_with_shapes(compiled: Any) -> None:
    compiled(torch.ones(2, 3), 1)
    compiled(torch.ones(5, 3), 1)


def call_with_numbers(compiled: Any) -> None:
    compiled(torch.ones(3), 0.5)
    compiled(torch.ones(3), 1.5)


def call_twice(compiled: Any) -> None:
    compiled(torch.ones(3))
    compiled(torch.ones(3))
