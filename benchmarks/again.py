"""Set up a model in one process and again in the next: how much time the caches of the first process save.

    python -m benchmarks.again --models bert resnet50 --out evidence/second-process-on-h200.json

Each model has its own cache folders, empty at first. The second process finds the caches of rocsolid and of torch; the third finds
only those of rocsolid, as in a container that starts on another machine.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rocsolid.catalog import cache_folders
from rocsolid.measure.evidence import evidence, write


def main() -> None:
    """Run all models, and print a line for each."""
    from benchmarks.models import MODELS

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["bert", "resnet50"], choices=list(MODELS), metavar="MODEL")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--out", type=Path, help="write the record here")
    parser.add_argument("--one", metavar="MODEL", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(_set_up(args.one, args.device, args.dtype)))
        return
    found: dict[str, Any] = {}
    for name in args.models:
        found[name] = _three_processes(name, args)
        first, second, third = (found[name][which]["setup_s"] for which in ("first", "second", "elsewhere"))
        print(
            f"{name:22s} {first:6.1f} s, then {second:5.2f} s ({second / first:.3f}), elsewhere {third:5.2f} s "
            f"({third / first:.3f})  {found[name]['second']}",
            flush=True,
        )
    if args.out:
        record = evidence(
            what="rs.optimize of a model in a first process, in a second one, and in one that has only the caches of rocsolid",
            command=" ".join(["python -m benchmarks.again", *sys.argv[1:]]),
            models=found,
        )
        write(record, args.out)


def _three_processes(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """One model in three processes, one after the other."""
    with tempfile.TemporaryDirectory() as folder:
        rocsolid_cache = {"XDG_CACHE_HOME": f"{folder}/kept"}
        return {
            which: _in_process(name, args, {**rocsolid_cache, **_torch_folders(f"{folder}/{torch_has}")})
            for which, torch_has in (("first", "here"), ("second", "here"), ("elsewhere", "nothing"))
        }


def _torch_folders(folder: str) -> dict[str, str]:
    return {cache_folders.INDUCTOR: folder, cache_folders.TRITON: f"{folder}/triton"}


def _in_process(name: str, args: argparse.Namespace, variables: dict[str, str]) -> dict[str, Any]:
    os.sync()  # so that no process waits for the writes of the one before it
    command = [sys.executable, "-m", "benchmarks.again", "--one", name, "--device", args.device, "--dtype", args.dtype]
    done = subprocess.run(command, env={**os.environ, **variables}, stdout=subprocess.PIPE, text=True, check=True)
    printed: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return printed


def _set_up(name: str, device: str, dtype: str) -> dict[str, Any]:
    import torch

    import rocsolid as rs
    from benchmarks.models import built_on

    model, inputs = built_on(name, device, dtype)
    if device == "cuda":
        torch.cuda.synchronize()
    begun = time.perf_counter()
    with torch.no_grad():
        fast = rs.optimize(model, inputs)
        fast(*inputs)
    if device == "cuda":
        torch.cuda.synchronize()
    took = time.perf_counter() - begun
    report = fast.report()
    return {
        "setup_s": round(took, 2),
        "chosen": report.chosen.label,
        "candidates_s": {c.form.label: round(c.setup_s, 2) for c in report.forms},
    }


if __name__ == "__main__":
    main()
