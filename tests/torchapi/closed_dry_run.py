"""Runs parts of a dry run with some private names closed, each in a fork of a process that has imported torch for a simulated GPU.

python closed_dry_run.py FOLDER BEFORE RUNS

FOLDER has `workload.py` and the stub library, BEFORE is a JSON list of the names that are closed before torch is imported, and RUNS a JSON
list of pairs: a part of the dry run, and the names that are closed for it. Prints a JSON list with what each run used, logged and returned.
"""

import json
import logging
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rocsolid.catalog.chips import DEFAULT_RELEASE, chip
from rocsolid.dryrun.compile_kernels import CompileContext, quiet_compilers
from rocsolid.dryrun.request import Request
from rocsolid.torchapi.name_probes import load_all_names
from rocsolid.torchapi.private_api import PrivateName, close_names

FOLDER, BEFORE, RUNS = Path(sys.argv[1]), json.loads(sys.argv[2]), json.loads(sys.argv[3])
TARGET = chip("gfx942")
USED: set[str] = set()
LOGGED: list[str] = []


def record_uses() -> None:
    """Record every private name that is looked up."""
    for method in ("_resolve", "is_closed", "put"):
        original = getattr(PrivateName, method)

        def call(name: PrivateName, *args: Any, _original: Any = original) -> Any:
            USED.add(str(name))
            return _original(name, *args)

        setattr(PrivateName, method, call)


class Messages(logging.Handler):
    """Keeps what rocsolid logs."""

    def emit(self, record: logging.LogRecord) -> None:
        LOGGED.append(record.getMessage())


def context() -> CompileContext:
    return CompileContext(chip=TARGET, journal=FOLDER / "journal", asm=False, save=None, kernel_deadline_s=60)


def request(function: str, **options: Any) -> Request:
    return Request(target=TARGET.arch, workload=f"{FOLDER}/workload.py:{function}", configs="first", **options)


def graphs() -> str:
    """A workload with graphs, a kernel of its own, a graph break, and a launch outside of any graph."""
    from rocsolid.dryrun.trace_workload import trace

    run = trace(request("graphs", mode="reduce-overhead"), context())
    return f"{len(run.graphs)} graphs, {len(run.kernels)} kernels, {len(run.breaks)} breaks"


def autotuned() -> str:
    """A workload whose matrix product is autotuned."""
    from rocsolid.dryrun.trace_workload import trace

    options = {"max_autotune_gemm": True, "max_autotune_gemm_backends": "ATEN,TRITON", "graph_partition": False}
    run = trace(request("product", options={**options, "triton.cudagraphs": True}, max_choices=1), context())
    return f"{len(run.graphs)} graphs, {len(run.searches)} searches"


def values() -> str:
    """A workload that needs the values of tensors, and is run on the CPU."""
    from rocsolid.dryrun.trace_workload import trace

    run = trace(request("values"), context())
    return f"{len(run.kernels)} kernels, {'needs real values' in str(run.notes)}"


def kernels() -> str:
    """A kernel of a file, whose arguments are inferred; in this process, where `rocsolid dryrun --kernels` starts more."""
    from rocsolid.dryrun import user_kernels

    project = user_kernels._read_project([f"{FOLDER}/kernels.py"])
    (found,) = project.kernels
    return str(user_kernels._infer(project, found, TARGET))


PARTS: dict[str, Callable[[], str]] = {part.__name__: part for part in (graphs, autotuned, values, kernels)}


def in_a_fork(part: str, closed: list[str]) -> dict[str, Any]:
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read_end)
        close_names(closed)
        try:
            result, error = PARTS[part](), ""
        except Exception as failure:  # noqa: BLE001 - collected for one report
            result, error = "", f"{type(failure).__name__}: {failure}"
        with os.fdopen(write_end, "w") as pipe:
            json.dump({"used": sorted(USED), "logged": LOGGED, "result": result, "error": error}, pipe)
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as pipe:
        text = pipe.read()
    os.waitpid(pid, 0)
    crashed = {"used": [], "logged": [], "result": "", "error": "the process crashed"}
    found: dict[str, Any] = json.loads(text) if text else crashed
    return found


def main() -> None:
    warnings.simplefilter("ignore")
    quiet_compilers()
    logging.getLogger("rocsolid").addHandler(Messages())
    load_all_names()
    record_uses()
    close_names(BEFORE)

    from rocsolid.torchapi.pretend.device import build_stub_library, pretend_device

    pretended = pretend_device(TARGET, DEFAULT_RELEASE[TARGET.platform], build_stub_library(FOLDER))
    pretended.set_num_threads(1)  # OpenMP threads cannot be used after a fork
    import torch._inductor.compile_fx  # noqa: F401 - imported once, for all forks

    json.dump([in_a_fork(part, closed) for part, closed in RUNS], sys.stdout)


if __name__ == "__main__":
    main()
