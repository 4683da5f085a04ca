"""Small workloads, some of which misbehave."""

import os
import time
from typing import Any

import torch


def layers() -> Any:
    torch.manual_seed(0)
    block = [torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU()) for _ in range(3)]
    return torch.nn.Sequential(*block).eval(), (torch.randn(16, 64),), {}


def training() -> Any:
    model = torch.nn.Linear(8, 8)

    def step(x: Any) -> Any:
        loss = model(x).sum()
        loss.backward()
        return loss.detach()

    return step, (torch.ones(2, 8),), {}


def random() -> Any:
    return torch.nn.Dropout(0.5).train(), (torch.ones(1000),), {}


def wrong_when_compiled() -> Any:
    def double(x: Any) -> Any:
        return x * 2.5 if torch.compiler.is_compiling() else x * 2

    return double, (torch.ones(8),), {}


def switchable() -> Any:
    """Takes a few milliseconds, and is fast, wrong, hangs or crashes as an environment variable says."""
    behaviour = os.environ.get("TRITON_DEFAULT_FP_FUSION", "")
    calls = 0

    def call(x: Any) -> Any:
        nonlocal calls
        calls += 1
        if behaviour == "hang" and calls > 2:
            time.sleep(1000)
        if behaviour == "crash":
            os.abort()
        time.sleep(0.002 if behaviour == "fast" else 0.004)
        is_variant = (
            calls > 5 and x.dtype == torch.float32
        )  # before, eager runs; later, a run in higher precision is right
        return x * (1.5 if behaviour == "wrong" and is_variant else 1)

    return call, (torch.ones(8),), {}


def two_ranks() -> Any:
    """A sum over all ranks; the last rank crashes or is fast as an environment variable says."""
    import torch.distributed as dist

    behaviour = os.environ.get("TRITON_DEFAULT_FP_FUSION", "")
    dist.init_process_group("gloo")
    last = dist.get_rank() == dist.get_world_size() - 1
    calls = 0

    def call(x: Any) -> Any:
        nonlocal calls
        calls += 1
        if behaviour == "crash" and last and calls > 4:
            os.abort()
        total = x.clone()
        dist.all_reduce(total)
        time.sleep(0.001 if behaviour == "fast" else 0.004)
        return total

    return call, (torch.full((8,), float(dist.get_rank() + 1)),), {}


def exclusive() -> Any:
    """A second process at the same time fails."""
    import fcntl
    from pathlib import Path

    lock = Path(os.environ["EXCLUSIVE_LOCK"]).open("w", encoding="utf-8")  # noqa: SIM115 - for as long as the process lives
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def call(x: Any) -> Any:
        time.sleep(0.001)
        return x + (0 if lock.closed else 1)

    return call, (torch.ones(8),), {}
