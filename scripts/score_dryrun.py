"""Measures how many Triton kernels of public projects a dry run compiles for AMD GPUs, out of those that compile for NVIDIA.

    python scripts/score_dryrun.py --package Liger-Kernel=/src/Liger-Kernel/src/liger_kernel@COMMIT --out evidence/dryrun-kernels.json

Every kernel that nothing but other kernels call is a device function and is left out, and so are folders for other vendors. With
`--sample N`, N kernels of each project are drawn with a fixed seed; kernels that the record already has at this commit, with the same
torch and Triton, are not compiled again, so that a larger N continues a smaller one. Registers, spills and scratch are compared with the metadata of
each object file, LDS with Triton's. The projects are given by path and never committed.
"""

import argparse
import ast
import json
import random
import re
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.object_files import metadata

from rocsolid.api.dryrun import dryrun_kernels
from rocsolid.dryrun.compile_kernels import saved_stem
from rocsolid.dryrun.infer_signature import ProjectSource
from rocsolid.dryrun.kernel_loader import find_kernels
from rocsolid.errors import RocsolidError
from rocsolid.model.dryrun import DryRun, DryRunKernel, DryRunRecord, KernelConfig

TARGETS = ("gfx942", "gfx1100")
# What Triton reports for an FP8 format, a precision such as tf32, or a scaled matrix product that the chip does not have.
MISSING_ON_CHIP = ("not supported in this architecture", "input_precision must be one of", "Unsupported DotScaleOp")
OTHER_VENDORS = ("ascend", "npu", "xpu", "musa", "cpu", "tpu", "test", "tests", "benchmark", "benchmarks")


def entry_kernels(package: Path) -> list[str]:
    """`file.py:name` of every kernel that is not a device function."""
    source, found = ProjectSource(), []
    for file in sorted(package.rglob("*.py")):
        text = file.read_text(encoding="utf-8", errors="replace")
        if "triton" not in text:
            continue
        try:
            tree = ast.parse(text)
        except SyntaxError:
            continue
        kernels = list(find_kernels(tree, file))
        source.add(tree, [kernel.node for kernel in kernels])
        found += kernels
    names = [
        f"{kernel.file.relative_to(package)}:{kernel.name}"
        for kernel in found
        if not source.is_device_function(kernel.node)
    ]
    return sorted({name for name in names if not any(part in other_parts(name) for part in OTHER_VENDORS)})


def other_parts(name: str) -> set[str]:
    """The words of the folders and the file of a kernel."""
    return {
        word
        for part in Path(name.rpartition(":")[0]).with_suffix("").parts
        for word in part.lower().strip("_").split("_")
    }


def rows(record: DryRunRecord, package: Path, saved: Path) -> list[dict[str, Any]]:
    """One row for each kernel: its outcome on every chip."""
    runs = [run for run in (*record.runs, record.compared) if run]
    result = []
    for location in dict.fromkeys(kernel.locations[0] for run in runs for kernel in run.kernels):
        kernels = {run.target: kernel for run in runs for kernel in run.kernels if kernel.locations[0] == location}
        first = next(iter(kernels.values()))
        chips = {run.target: outcome(kernels[run.target], run, saved) for run in runs if run.target in kernels}
        file = str(Path(location.rpartition(":")[0]).relative_to(package.resolve()))
        result.append({"kernel": first.name, "file": file, "signature": first.signature, "chips": chips})
    for skipped in runs[0].skipped:
        file = str(Path(skipped.location.rpartition(":")[0]).relative_to(package.resolve()))
        result.append({"kernel": skipped.name, "file": file, "skipped": without_folders(skipped.reason)})
    return result


def without_folders(text: str) -> str:
    """The text with only the last part of each path, so that the record does not depend on where the projects lie."""
    return re.sub(r"(?<![\w.])/[^\s'\"]*/", "", text)


def outcome(kernel: DryRunKernel, run: DryRun, saved: Path) -> dict[str, Any]:
    """What became of a kernel on a chip."""
    (config,) = kernel.configs
    if config.resources is None:
        kind = "refused" if kernel.foreign or any(text in config.error for text in MISSING_ON_CHIP) else "failed"
        error = without_folders(re.sub(r" source /\S+ into object file /\S+", "", config.error))
        return {"outcome": kind, "reason": "; ".join([*kernel.foreign, error])[:300]}
    used = config.resources
    figures = {"registers": used.registers, "spills": used.spills, "lds": used.lds_bytes, "fits": used.fits}
    return {"outcome": "compiled", **figures, **equals_object(kernel, config, run, saved)}


def equals_object(kernel: DryRunKernel, config: KernelConfig, run: DryRun, saved: Path) -> dict[str, bool]:
    """Whether the figures are those of the object file; nothing for NVIDIA."""
    stem = saved / run.target / saved_stem(f"{kernel.name} {config.label}")
    files = [Path(f"{stem}.hsaco"), Path(f"{stem}.json")]
    if not all(file.exists() for file in files) or config.resources is None:
        return {}
    (entry,) = metadata(files[0].read_bytes())["amdhsa.kernels"]
    used = config.resources
    expected = (
        entry[".vgpr_count"],
        entry[".sgpr_count"],
        entry[".vgpr_spill_count"],
        entry[".private_segment_fixed_size"],
        json.loads(files[1].read_text())["shared"],
    )
    return {
        "equal": expected == (used.registers, used.scalar_registers, used.spills, used.scratch_bytes, used.lds_bytes)
    }


def summary(project: dict[str, Any]) -> dict[str, Any]:
    """Counts of one project."""
    signed = [row for row in project["rows"] if "chips" in row]
    nvidia = [row for row in signed if row["chips"].get("sm_90", {}).get("outcome") == "compiled"]
    counts: dict[str, Any] = {
        "entry_kernels": project["entry_kernels"],
        "drawn": project["drawn"],
        "with_signature": len(signed),
        "compile_for_nvidia": len(nvidia),
    }
    for target in TARGETS:
        chips = [row["chips"].get(target, {}) for row in nvidia]
        counts[target] = {
            **{kind: sum(c.get("outcome") == kind for c in chips) for kind in ("compiled", "refused", "failed")},
            "spill": sum(bool(c.get("spills")) for c in chips),
            "over_lds": sum(c.get("fits") is False for c in chips),
            "figures_differ": sum(c.get("equal") is False for c in chips),
            "figures_compared": sum("equal" in c for c in chips),
        }
    return counts


def row_name(row: dict[str, Any]) -> str:
    """`file.py:name` of a row."""
    return f"{row['file']}:{row['kernel']}"


def earlier(project: dict[str, Any], commit: str, drawn: list[str]) -> dict[str, Any]:
    """The rows of the drawn kernels that the record has already, and the seconds that they took."""
    used = {"commit": commit, "torch": version("torch"), "triton": version("triton")}
    if any(project.get(key) != value for key, value in used.items()):
        return {"rows": [], "seconds": 0}
    return {"rows": [row for row in project["rows"] if row_name(row) in drawn], "seconds": project["seconds"]}


def main() -> None:
    """Measure every package and write the record after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--package", action="append", required=True, metavar="NAME=FOLDER@COMMIT")
    parser.add_argument("--sample", type=int, default=0)
    parser.add_argument("--seed", type=int, default=29)
    parser.add_argument("--deadline", type=float, default=3600.0)
    parser.add_argument("--kernel-deadline", type=float, default=60.0, help="seconds for one kernel on one chip")
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    data: dict[str, Any] = {"schema": "rocsolid/dryrun-kernels/1", "measured_on": "", "projects": {}}
    if args.out.exists():
        data = json.loads(args.out.read_text())
    for text in args.package:
        name, _, rest = text.partition("=")
        folder, _, commit = rest.partition("@")
        package = Path(folder)
        entries = entry_kernels(package)
        shuffled = random.Random(args.seed).sample(entries, len(entries))  # noqa: S311 - a reproducible sample
        drawn = shuffled[: args.sample or len(entries)]
        known = earlier(data["projects"].get(name, {}), commit, drawn)
        missing = sorted(set(drawn) - {row_name(row) for row in known["rows"]})
        if not missing:
            continue
        started = time.monotonic()
        with tempfile.TemporaryDirectory() as saved:
            try:
                record = dryrun_kernels(
                    package,
                    TARGETS,
                    only=[str(package.resolve() / kernel) for kernel in missing],
                    compare="cuda",
                    configs="first",
                    save=saved,
                    cache=args.cache,
                    deadline_s=args.deadline,
                    kernel_deadline_s=args.kernel_deadline,
                    progress=lambda line: print(line, file=sys.stderr, flush=True),
                )
            except RocsolidError as error:
                sys.stderr.write(f"{name}: {error}\n")
                continue
            project: dict[str, Any] = {
                "commit": commit,
                "entry_kernels": len(entries),
                "drawn": len(drawn),
                "seed": args.seed if len(drawn) < len(entries) else None,
                "kernel_deadline_s": args.kernel_deadline,
                "torch": record.runs[0].torch,
                "triton": record.runs[0].triton,
                "seconds": known["seconds"] + round(time.monotonic() - started),
                "rows": sorted([*known["rows"], *rows(record, package, Path(saved))], key=row_name),
            }
        project["summary"] = summary(project)
        data["projects"][name] = project
        data["measured_on"] = time.strftime("%Y-%m-%d")
        args.out.write_text(json.dumps(data, indent=1) + "\n")
        sys.stdout.write(f"{name}: {json.dumps(project['summary'])}\n")


if __name__ == "__main__":
    main()
