"""Compare FLOPs, bytes, TFLOP/s and GB/s of operators with those of TraceLens on the same traces.

With a Python that has TraceLens (github.com/AMD-AGI/TraceLens), write its figures:
    python scripts/compare_tracelens.py dump trace.json.gz figures.json
With a Python that has rocsolid, compare:
    python scripts/compare_tracelens.py compare trace.json.gz figures.json [...]

Prints for each operator how many rows both have, how many agree within 1 %, and the largest difference.
"""

import argparse
import importlib
import json
import math
from collections import defaultdict
from pathlib import Path
from typing import Any

TOLERANCE = 0.01
# TraceLens reports the outer operator, rocsolid the inner one that launches the kernel.
INNER = {
    "aten::_scaled_dot_product_flash_attention": ("aten::_flash_attention_forward",),
    "aten::convolution": ("aten::miopen_convolution", "aten::cudnn_convolution", "aten::convolution_overrideable"),
}


def main() -> None:
    """Run one of the two commands."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("command", choices=("dump", "compare"))
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("-v", "--verbose", action="store_true", help="print each row that differs")
    args = parser.parse_args()
    if args.command == "dump":
        trace, figures = args.files
        figures.write_text("".join(json.dumps(row) + "\n" for row in dump(trace)))
        return
    counts: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for trace, figures in zip(args.files[::2], args.files[1::2], strict=True):
        for row in map(json.loads, figures.read_text().splitlines()):
            for what, difference in differences(trace, row):
                counts[row["name"]][what].append(difference)
                if args.verbose and abs(difference) > TOLERANCE:
                    print(
                        f"{trace.name} {row['name']} {row['dims']} {row['types']} {row['values']} {what} {difference:+.3f}"
                    )
    for name, kinds in sorted(counts.items()):
        texts = [
            f"{what} {sum(abs(d) <= TOLERANCE for d in found)}/{len(found)} (largest {max(found, key=abs):+.3f})"
            for what, found in kinds.items()
        ]
        print(f"{name}: {', '.join(texts)}")


def dump(trace: Path) -> list[dict[str, Any]]:
    """Return the operators of a trace as TraceLens reports them, one row per set of inputs."""
    TreePerfAnalyzer = importlib.import_module("TraceLens.TreePerf").TreePerfAnalyzer  # noqa: N806 - a class

    analyzer = TreePerfAnalyzer.from_file(str(trace))
    table = analyzer.build_df_unified_perf_table(analyzer.collect_unified_perf_events())
    rows: dict[str, dict[str, Any]] = {}
    for entry in table.to_dict("records"):
        if not entry.get("has_perf_model") or not entry.get("Kernel Time (µs)"):
            continue
        inputs = {
            "name": entry["name"],
            "dims": entry["Input Dims"],
            "types": entry["Input type"],
            "values": [str(value) for value in entry["Concrete Inputs"]],
        }
        key = json.dumps(inputs, default=str)
        row = rows.setdefault(
            key, {**inputs, "count": 0, "us": 0.0, "gflop": entry["GFLOPS"], "mib": entry["Data Moved (MB)"]}
        )
        row["count"] += 1
        row["us"] += entry["Kernel Time (µs)"]
    return list(rows.values())


def differences(trace: Path, row: dict[str, Any]) -> list[tuple[str, float]]:
    """Return the relative differences of one row: of the cost, and of the rates where our trace has the same operator."""
    from rocsolid.trace.analysis.cost_model import operator_cost, parse_inputs

    detail = "\0".join([json.dumps(row[key]) for key in ("dims", "types", "values")] + [""])
    cost = operator_cost(row["name"], detail)
    if cost is None or not row["mib"] or math.isnan(row["mib"]):
        return []
    found = [("bytes", cost.bytes / (row["mib"] * 2**20) - 1)]
    if row["gflop"] and cost.flops:
        found.append(("FLOPs", cost.flops / (row["gflop"] * 1e9) - 1))
    inputs = parse_inputs(detail)
    inner = INNER.get(row["name"])
    ours = [
        entry
        for entry in _operators(trace)
        if (entry.name, entry.shape, entry.element_type) == (row["name"], inputs.text, inputs.element_type)
        or (inner and entry.name in inner and entry.flops == cost.flops * row["count"])
    ]
    if len(ours) == 1 and ours[0].calls == row["count"] and ours[0].gb_per_s:
        theirs = row["mib"] * 2**20 * row["count"] / row["us"] / 1e3
        found.append(("GB/s", ours[0].gb_per_s / theirs - 1))
        if ours[0].tflops and row["gflop"]:
            found.append(("TFLOP/s", ours[0].tflops / (row["gflop"] * row["count"] / row["us"] * 1e3) - 1))
    return found


_analyzed: dict[Path, Any] = {}


def _operators(trace: Path) -> Any:
    if trace not in _analyzed:
        import rocsolid as rs

        _analyzed[trace] = [row for device in rs.trace(trace).files[0].devices for row in device.operators]
    return _analyzed[trace]


if __name__ == "__main__":
    main()
