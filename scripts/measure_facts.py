"""Run small named experiments on torch.compile and CUDA graphs, and write one evidence record.

    python scripts/measure_facts.py --out evidence/compiler-facts-torch-2.13-cpu.json
    python scripts/measure_facts.py --out evidence/capture-facts-on-h200.json   # on a machine with a GPU

Every experiment runs in its own process with empty caches and a deadline. It declares the expected observations. If
they are seen, its statement is written to the record; otherwise it is recorded as failed and the exit code is 1.
Without a GPU the compiler experiments run, with a GPU the capture experiments. The expectations are for torch 2.13
without a GPU and 2.11 with one; a failure on another release means that torch has changed.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from facts import capture, compiling, debugging, numbers, settings
from facts.declare import Fact, declared
from rocsolid.measure.evidence import evidence

FACTS = {
    fact.name: fact for module in (settings, compiling, debugging, numbers, capture) for fact in declared(vars(module))
}
DEADLINE_S = 240
CLEARED_PREFIXES = ("TORCHINDUCTOR_", "TORCHDYNAMO_", "TORCH_COMPILE_", "TORCH_LOGS", "TORCH_TRACE", "INDUCTOR_")
SUBJECTS = {
    "cpu": "what torch.compile and its settings do, each observed in its own small experiment, without a GPU",
    "gpu": "how graph capture and torch.compile affect each other, each observed in its own small experiment",
}


def main() -> int:
    """Run the experiments that apply here and write the record."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("evidence/facts.json"))
    parser.add_argument("--only", choices=sorted(FACTS), metavar="NAME", help="run one, keep the rest of the record")
    parser.add_argument("--child", nargs=2, metavar=("NAME", "FILE"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        name, result = args.child
        Path(result).write_text(json.dumps(FACTS[name].run()), encoding="utf-8")
        return 0
    record = heading(args.out)
    if args.only:
        record["facts"] = stored(args.out, record)
    here = [name for name, fact in FACTS.items() if record["kind"] in fact.kinds]
    if args.only and args.only not in here:
        parser.error(f"{args.only} needs a {FACTS[args.only].kinds[0].upper()}")
    wanted = [args.only] if args.only else here
    for name in wanted:
        record["facts"][name] = row = measure(FACTS[name])
        print(f"{name:28}", row.get("failed") or row["says"], flush=True)
        shown = {key: value for key, value in record.items() if key != "kind"}
        args.out.write_text(json.dumps(shown, indent=1) + "\n", encoding="utf-8")
    return int(any("failed" in row for row in record["facts"].values()))


def heading(out: Path) -> dict[str, Any]:
    """The record without its facts."""
    import torch

    kind = "gpu" if torch.cuda.is_available() else "cpu"
    return evidence(what=SUBJECTS[kind], command=f"python scripts/measure_facts.py --out {out}", kind=kind, facts={})


def stored(out: Path, record: dict[str, Any]) -> dict[str, Any]:
    """The facts already in the file, if they come from the same torch on the same device."""
    if not out.exists():
        return {}
    old = json.loads(out.read_text(encoding="utf-8"))
    same = all(old[key] == record[key] for key in ("device", "torch", "python"))
    return dict(old["facts"]) if same else {}


def measure(fact: Fact) -> dict[str, Any]:
    """Run one experiment in a fresh interpreter; return its statement and observations, or why it failed."""
    with tempfile.TemporaryDirectory() as folder:
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(CLEARED_PREFIXES)}
        caches = {"TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor", "TRITON_CACHE_DIR": f"{folder}/triton"}
        result = Path(folder, "result.json")
        command = [sys.executable, str(Path(__file__).resolve()), "--child", fact.name, str(result)]
        try:
            done = subprocess.run(
                command,
                env=inherited | caches | dict(fact.env),
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=DEADLINE_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return {"failed": f"not done after {DEADLINE_S} s"}
        if not result.exists():  # a crash after the result was written does not matter
            return {"failed": (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1][:300]}
        seen = json.loads(result.read_text(encoding="utf-8"))
    wrong = [
        f"{key}: expected {value!r}, saw {seen.get(key)!r}"
        for key, value in fact.expect.items()
        if seen.get(key) != value
    ]
    if wrong:
        return {"failed": "; ".join(wrong), "seen": seen}
    return {"says": fact.says.format_map(seen), "seen": seen}


if __name__ == "__main__":
    raise SystemExit(main())
