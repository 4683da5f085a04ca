"""Functions of a user that cannot be captured, or only in part. Their lines are in the golden messages."""

import threading
import time
import types
from contextlib import suppress
from typing import Any

import numpy as np
import torch


def reads_a_value(x: Any) -> Any:
    return x * x.sum().item()


def branches_on_a_value(x: Any) -> Any:
    return x + 1 if x.sum() > 0 else x - 1


def indexes_with_a_mask(x: Any) -> Any:
    return x[x > 0].sum()


def creates_a_tensor(x: Any) -> Any:
    return x + torch.tensor(np.arange(3.0))


def copies_to_the_cpu(x: Any) -> Any:
    return x * float(x.cpu().sum())


def prints(x: Any) -> Any:
    str(x)
    return x * 2


def sets_the_seed(x: Any) -> Any:
    torch.manual_seed(1)
    return x + torch.rand_like(x)


def raises_in_the_capture(x: Any) -> Any:
    if torch._C._len_torch_dispatch_stack():
        raise RuntimeError("the plugin has no kernel for this")  # noqa: EM101, TRY003 - a user's code
    return x * 2


def returns_an_object(x: Any) -> Any:
    return {"y": x * 2, "lock": threading.Lock()}


def compiles_every_time(x: Any) -> Any:
    new_code = doubles.__code__.replace()
    compiled = torch.compile(types.FunctionType(new_code, globals()), backend="eager")
    return compiled(x)


def doubles(x: Any) -> Any:
    return x * 2 + 1


class Counter(torch.nn.Module):  # type: ignore[misc]
    """Changes Python state."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.history: list[int] = []

    def forward(self, x: Any) -> Any:
        self.count += 1
        self.history.append(self.count)
        return x * 2


class Processor:
    """A plain object that a module calls."""

    factor = 2.0

    def __call__(self, x: Any) -> Any:
        return x * self.factor

    def owner(self) -> Any:
        module: Any = torch.nn.Module()
        module.processor = Processor()
        module.forward = lambda x: module.processor(x)  # noqa: PLW0108 - reads the attribute at each call
        return module


class OtherProcessor(Processor):
    """Another class."""


def calls_relu(x: Any) -> Any:
    return torch.nn.functional.relu(x)


class Config:
    """A plain object."""

    scale = 2.0


def differs_every_time(x: Any) -> Any:
    return x * (time.perf_counter_ns() % 1000)


def sums_over_padding(x: Any) -> Any:
    return {"each": x + 1, "total": (x + 1).sum()}


def synchronizes(x: Any) -> Any:
    y = x * 2
    torch.cuda.synchronize()
    return y


def queries_its_event(x: Any) -> Any:
    event = torch.cuda.Event()
    event.record()
    event.query()
    return x * 2


def forks(x: Any) -> Any:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        return x * 2


def waits_for_an_old_event(x: Any) -> Any:
    torch.cuda.current_stream().wait_event(torch.cuda.default_stream().record_event())
    return x * 2


def uses_another_stream(x: Any) -> Any:
    with torch.cuda.stream(torch.cuda.Stream()):
        y = x * 2
    return y + 1


def synchronizes_in_a_thread(x: Any) -> Any:
    def wait() -> None:
        with suppress(Exception):
            torch.cuda.synchronize()

    thread = threading.Thread(target=wait)
    thread.start()
    thread.join()
    return x * 2
