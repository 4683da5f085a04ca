"""Run the dry run over its test models, and compare the resource figures of every kernel with the object file.

    python scripts/check_dryrun.py --out evidence/dryrun-models.json
    python scripts/check_dryrun.py --only llama_block --only bert+train --target gfx950

A model is complete when it was traced to its end, and each configuration of each kernel was compiled or has an error message. The
figures of the resource table are compared with the metadata note in the object file (parsed here byte by byte), the size of its code,
and Triton's metadata. Exits with 1 when a model is incomplete or a figure differs. Needs no GPU; run from the repository's root. A
public model whose package is missing is skipped with a message.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from rocsolid.measure.evidence import evidence

ROOT: Final = Path(__file__).parents[1]
MODELS: Final = "benchmarks/dryrun_models.py"
# By name: the function, whether it is trained, the mode, and the package it needs.
ROWS: Final[Mapping[str, tuple[str, bool, str, str]]] = {
    "mlp": ("mlp", False, "default", ""),
    "mlp+max-autotune": ("mlp", False, "max-autotune", ""),
    "llama_block": ("llama_block", False, "reduce-overhead", ""),
    "llama_flex": ("llama_flex", False, "default", ""),
    "llama_flex+train": ("llama_flex", True, "default", ""),
    "language": ("language", False, "default", ""),
    "language+train": ("language", True, "default", ""),
    "convolutions": ("convolutions", False, "default", ""),
    "convolutions+train": ("convolutions", True, "default", ""),
    "dropping": ("dropping", False, "default", ""),
    "dropping+train": ("dropping", True, "default", ""),
    "bert": ("bert", False, "default", "transformers"),
    "bert+train": ("bert", True, "default", "transformers"),
    "gpt2": ("gpt2", False, "default", "transformers"),
    "llama": ("llama", False, "default", "transformers"),
    "whisper": ("whisper", False, "default", "transformers"),
    "clip_vision": ("clip_vision", False, "default", "transformers"),
    "t5_encoder": ("t5_encoder", False, "default", "transformers"),
    "resnet50": ("resnet50", False, "default", "torchvision"),
    "swin_t": ("swin_t", False, "default", "torchvision"),
    "convnext_tiny": ("convnext_tiny", False, "default", "torchvision"),
}
# Field of Resources, key in the metadata note.
FIGURES: Final = {
    "registers": ".vgpr_count",
    "matrix_registers": ".agpr_count",
    "scalar_registers": ".sgpr_count",
    "spills": ".vgpr_spill_count",
    "scalar_spills": ".sgpr_spill_count",
    "scratch_bytes": ".private_segment_fixed_size",
    "wavefront": ".wavefront_size",
}
CUT_SHORT: Final = ("was not seen", "nothing was compiled")  # the notes of an incomplete run
HEADINGS = ("model", "chip", "kernels", "configurations", "compiled", "first error", "figures", "seconds")


def main() -> int:
    """Run the models, print a row for each, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", default=[], choices=ROWS, metavar="NAME")
    parser.add_argument("--target", action="append", default=[])
    parser.add_argument("--deadline", type=float, default=900.0, metavar="SECONDS")
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    sys.path[:0] = sources = [str(ROOT / "src"), str(ROOT)]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [*sources, os.environ.get("PYTHONPATH")]))
    rows = []
    print("  ".join(HEADINGS), flush=True)
    for name in args.only or ROWS:
        for target in args.target or ["gfx942"]:
            rows.append(check_model(name, target, args))
            print(row_text(rows[-1]), flush=True)
            if args.out:  # after every row, in case the machine is lost
                args.out.write_text(json.dumps({**record_heading(), "rows": rows}, indent=1) + "\n")
    return 1 if any(row.get("incomplete") or row.get("different") for row in rows) else 0


def check_model(name: str, target: str, args: argparse.Namespace) -> dict[str, Any]:
    """One model on one chip."""
    import rocsolid as rs
    from rocsolid.errors import RocsolidError

    function, train, mode, package = ROWS[name]
    row: dict[str, Any] = {"model": name, "target": target, "train": train, "mode": mode}
    if package and find_spec(package) is None:
        return {**row, "skipped": f"{package} is not installed"}
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as saved:
        try:
            record = rs.dryrun(
                f"{ROOT / MODELS}:{function}",
                target,
                train=train,
                mode=mode,
                save=saved,
                max_choices=100,
                deadline_s=args.deadline,
                cache=args.cache,
            )
        except RocsolidError as refused:
            return {**row, "incomplete": str(refused), "seconds": round(time.monotonic() - started, 1)}
        seconds = round(time.monotonic() - started, 1)
        return {**row, **check_run(record, Path(saved) / target), "seconds": seconds}


def check_run(record: Any, saved: Path) -> dict[str, Any]:
    """The counts of a run, what is missing, and the figures that differ."""
    (run,) = record.runs
    configs = [(kernel, config) for kernel in run.kernels for config in kernel.configs]
    failed = [f"{kernel.name} {config.label}: {config.error}" for kernel, config in configs if not config.resources]
    without_error = [kernel.name for kernel, config in configs if not config.resources and not config.error]
    without_error += [kernel.name for kernel in run.kernels if not kernel.configs]
    wanted = {"forward", "backward"} if record.train else {"inference"}
    missing = [f"no {kind} graph" for kind in wanted - {graph.kind for graph in run.graphs}]
    checked, different = 0, []
    for kernel, config in configs:
        if config.resources:
            checked += 1
            different += list(differences(kernel, config, saved))
    return {
        "torch": run.torch,
        "triton": run.triton,
        "graphs": [graph.kind for graph in run.graphs],
        "library_calls": sum(extern.count for graph in run.graphs for extern in graph.externs),
        "kernels": len(run.kernels),
        "configurations": len(configs),
        "compiled": checked,
        "failed": failed,
        "searched": sum(search.compiled for search in run.searches),
        "search_failed": sum(search.failed for search in run.searches),
        "spilling": sum(bool(config.resources and config.resources.spills) for _, config in configs),
        "checked_against_object_files": checked,
        "different": different,
        "findings": sorted({finding.code for finding in record.findings}),
        "notes": list(run.notes),
        "breaks": [f"{seen.place}: {seen.reason}" for seen in run.breaks],
        "incomplete": "; ".join(
            [*missing, *without_error, *(note for note in run.notes if any(w in note for w in CUT_SHORT))]
        ),
        "trace_and_compile_seconds": run.seconds,
    }


def differences(kernel: Any, config: Any, saved: Path) -> Iterator[str]:
    """Yield the figures that differ from the object file or from Triton's metadata."""
    from benchmarks.object_files import code_bytes, metadata

    from rocsolid.dryrun.compile_kernels import saved_stem

    file = saved / f"{saved_stem(f'{kernel.graph} {kernel.name} {config.label}')}.hsaco"
    if not file.exists():
        yield f"{kernel.name} {config.label}: no object file"
        return
    elf, used = file.read_bytes(), config.resources
    (note,) = [entry for entry in metadata(elf)["amdhsa.kernels"] if not entry[".name"].startswith("__")]
    expected = {field: note[key] for field, key in FIGURES.items()} | {"code_bytes": code_bytes(elf, note[".name"])}
    triton = json.loads(file.with_suffix(".json").read_text())
    expected |= {"lds_bytes": triton["shared"]}
    if note[".max_flat_workgroup_size"] != triton["num_warps"] * used.wavefront:
        yield f"{kernel.name} {config.label}: {note['.max_flat_workgroup_size']} lanes in the object file"
    for name, value in expected.items():
        if getattr(used, name) != value:
            yield f"{kernel.name} {config.label}: {name} is {getattr(used, name)}, the object file has {value}"


def row_text(row: dict[str, Any]) -> str:
    """One line of the table."""
    begin = f"{row['model']:20} {row['target']:8}"
    if "skipped" in row:
        return f"{begin} skipped: {row['skipped']}"
    if "kernels" not in row:
        return f"{begin} INCOMPLETE after {row['seconds']} s: {row['incomplete']}"
    figures = "equal" if not row["different"] else f"{len(row['different'])} DIFFER, {row['different'][0]}"
    why = row["failed"][0][:160] if row["failed"] else "-"
    end = f"  INCOMPLETE: {row['incomplete']}" if row["incomplete"] else ""
    counts = f"{row['kernels']:4} {row['configurations']:4} {row['compiled']:4}"
    return f"{begin} {counts}  {why}  {figures}  {row['seconds']:.1f} s{end}"


def record_heading() -> dict[str, Any]:
    """The evidence record without its rows."""
    return evidence(
        what="dry runs of twelve models and more: every kernel compiled, figures compared with the object files",
        command=" ".join(["python", "scripts/check_dryrun.py", *sys.argv[1:]]),
    )


if __name__ == "__main__":
    raise SystemExit(main())
