"""Write large traces with known totals, to test and time trace readers.

python scripts/make_trace.py stacks 1000 /tmp/a.json      # 1000 MB, nine tenths of it Python functions, HIP graphs
python scripts/make_trace.py dense 1000 /tmp/b.json       # 1000 MB, no stacks: operators, calls, flows, kernels
python scripts/make_trace.py copies 20 /tmp/c.json --source real.json.gz    # a real trace, 20 times in a row

The totals are written next to the trace, to FILE.truth.json.
"""

import argparse
import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path

NAMES = [
    "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT128x192x64_MI16x16x1_SN_LDSB1_AFC1_AFEM1_AFEM1_ASEM1_CLR1_CADS0_DTVA0",
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>, std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<c10::BFloat16>, std::array<char*, 3ul>)",
    "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>(int, float, c10::BFloat16 const*, c10::BFloat16 const*, c10::BFloat16 const*, float*, float*, c10::BFloat16*)",
    "attn_fwd",
    "triton_poi_fused_add_mul_silu_0",
]
HEAD = """{
  "schemaVersion": 1,
  "deviceProperties": [
    {
      "id": 0, "name": "AMD Instinct MI300X", "totalGlobalMem": 206141652992,
      "computeMajor": 9, "computeMinor": 4, "warpSize": 64, "numSms": 304
    }
  ],
  "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 1},
  "with_stack": 1,
  "displayTimeUnit": "ms",
  "baseTimeNanoseconds": 1767189312000000000,
  "traceEvents": [
  {
    "ph": "M", "name": "process_name", "ts": 3743411222487.063, "pid": 542, "tid": 0,
    "args": {
      "name": "python"
    }
  }"""
TAIL = """
  ],
  "traceName": "made.json"
}
"""
START_NS = 3743411222487063
SHIFTED = re.compile(
    rb'("ts"\s*:\s*)(\d+)(\.\d+)?|("(?:correlation|External id|Python id|Python parent id|Ev Idx|id)"\s*:\s*)(\d+)'
)


class Truth:
    """Totals, counted while the trace is written."""

    def __init__(self) -> None:
        self.totals = dict.fromkeys(
            ("kernel_count", "kernel_time_ns", "busy_ns", "copy_count", "copy_bytes", "graph_launches"), 0
        )
        self.totals |= dict.fromkeys(("graph_kernel_count", "graph_kernel_time_ns", "events", "first", "last"), 0)

    def device(self, start: int, length: int) -> None:
        """Add one interval of GPU work; intervals do not overlap."""
        self.totals["busy_ns"] += length
        self.totals["first"] = self.totals["first"] or start
        self.totals["last"] = max(self.totals["last"], start + length)

    def as_json(self) -> str:
        """The totals, and the values derived from them."""
        totals = dict(self.totals)
        span = totals.pop("last") - totals.pop("first")
        return json.dumps({**totals, "span_ns": span, "idle_ns": span - totals["busy_ns"], "skipped_events": 0})


def us(ns: int) -> str:
    """A time as Kineto writes it."""
    return f"{ns // 1000}.{ns % 1000:03d}"


def event(category: str, name: str, tid: int, start: int, length: int, args: str, pid: int = 542) -> str:
    """One complete event in Kineto's layout."""
    return (
        f',\n  {{\n    "ph": "X", "cat": "{category}", "name": "{name}", "pid": {pid}, "tid": {tid},\n'
        f'    "ts": {us(start)}, "dur": {us(length)},\n    "args": {{\n      {args}\n    }}\n  }}'
    )


def flow(phase: str, number: int, pid: int, tid: int, at: int) -> str:
    """One end of a flow event from a launch to its work."""
    end = ', "bp": "e"' if phase == "f" else ""
    return (
        f',\n  {{\n    "ph": "{phase}", "id": {number}, "pid": {pid}, "tid": {tid}, "ts": {us(at)},\n'
        f'    "cat": "ac2g", "name": "ac2g"{end}\n  }}'
    )


def launches(truth: Truth, number: int, at: int, *, functions: int, replayed: int) -> Iterator[str]:
    """One operator: its Python frames, its runtime call, its kernels; every seventh is a copy, every fifth a graph."""
    frames = min(functions, 40)
    for depth in range(functions):
        name = (
            f"/opt/venv/lib/python3.12/site-packages/torch/nn/modules/module_{depth % 97}.py({depth * 7}): _call_impl"
        )
        args = f'"Python parent id": {number * frames + depth}, "Python id": {number * frames + depth + 1}, "Ev Idx": {depth}'
        yield event("python_function", name, 542, at + depth * 10, 90_000 - depth * 20, args)
        truth.totals["events"] += 1
    dims = '"Input Dims": [[32, 4096], [4096, 4096]], "Input Strides": [[4096, 1], [1, 4096]], "Input type": ["c10::BFloat16", "c10::BFloat16"]'
    yield event(
        "cpu_op", "aten::addmm", 542, at + 1_000, 40_000, f'"External id": {number},"Record function id": 0, {dims}'
    )
    graph, copy = number % 5 == 0 and replayed > 0, number % 7 == 0 and number % 5 != 0
    call = "hipGraphLaunch" if graph else "hipMemcpyAsync" if copy else "hipExtModuleLaunchKernel"
    yield event(
        "cuda_runtime", call, 542, at + 5_000, 4_321, f'"External id": {number}, "cid": 47, "correlation": {number}'
    )
    yield flow("s", number, 542, 542, at + 5_000)
    truth.totals["events"] += 3
    truth.totals["graph_launches"] += graph
    begin = at + 12_000 + number % 1000
    for kernel in range(replayed if graph else 1):
        length = 3_001 + (number * 37 + kernel * 11) % 5_000
        args = f'"External id": {number},      "device": 0, "stream": 3,      "correlation": {number}, "kind": "Dispatch Kernel"'
        if copy:
            size = 512 * (1 + number % 100)
            yield event("gpu_memcpy", "Memcpy HtoD (Host -> Device)", 3, begin, length, f'{args}, "bytes": {size}', 0)
            truth.totals["copy_count"] += 1
            truth.totals["copy_bytes"] += size
        else:
            shape = ',      "grid":     [304, 1, 1], "block":     [256, 1, 1]'
            yield event("kernel", NAMES[(number + kernel) % len(NAMES)], 3, begin, length, args + shape, 0)
            truth.totals["kernel_count"] += 1
            truth.totals["kernel_time_ns"] += length
            truth.totals["graph_kernel_count"] += graph
            truth.totals["graph_kernel_time_ns"] += length * graph
        yield flow("f", number, 0, 3, begin)
        truth.device(begin, length)
        truth.totals["events"] += 2
        begin += length + 57


def write_trace(out: Path, size: int, *, functions: int, replayed: int) -> Truth:
    """Write operators until the file has the size."""
    truth = Truth()
    truth.totals["events"] = 1
    with out.open("w", encoding="utf-8", buffering=1 << 20) as file:
        written = file.write(HEAD)
        number, at = 1, START_NS
        while written < size:
            for text in launches(truth, number, at, functions=functions, replayed=replayed):
                written += file.write(text)
            number += 1
            at += 200_000
        file.write(TAIL)
    return truth


def repeat_trace(source: Path, out: Path, copies: int) -> None:
    """Write a real trace several times in a row, with shifted times and ids; everything else is unchanged."""
    text = gzip.decompress(source.read_bytes()) if source.suffix == ".gz" else source.read_bytes()
    opening = re.search(rb'"traceEvents"\s*:\s*\[', text)
    assert opening is not None, "no events"
    end = _list_end(text, opening.end())
    events = text[opening.end() : end]
    times = [int(m.group(2)) for m in SHIFTED.finditer(events) if m.group(2)]
    length = max(times) - min(times) + 10_000
    highest = max(int(m.group(5)) for m in SHIFTED.finditer(events) if m.group(5)) + 1
    with out.open("wb") as file:
        file.write(text[: opening.end()])
        for number in range(copies):
            moved = SHIFTED.sub(lambda m, n=number: _shifted(m, n * length, n * highest), events)  # type: ignore[misc]
            file.write((b"," if number else b"") + moved)
        file.write(text[end:])


def _list_end(text: bytes, start: int) -> int:
    depth, at = 1, start
    for found in re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]]').finditer(text, start):
        depth += {b"[": 1, b"]": -1}.get(found.group(), 0)
        if depth == 0:
            at = found.start()
            break
    return at


def _shifted(found: "re.Match[bytes]", time: int, number: int) -> bytes:
    if found.group(2):
        return found.group(1) + str(int(found.group(2)) + time).encode() + (found.group(3) or b"")
    return found.group(4) + str(int(found.group(5)) + number).encode()


def main() -> None:
    """Parse the arguments and write the trace."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("stacks", "dense", "copies"))
    parser.add_argument("amount", type=int, help="size in MB; with copies, how many")
    parser.add_argument("out", type=Path)
    parser.add_argument("--source", type=Path, help="with copies: the trace to copy")
    args = parser.parse_args()
    if args.kind == "copies":
        repeat_trace(args.source, args.out, args.amount)
        return
    shape = {"stacks": {"functions": 60, "replayed": 6}, "dense": {"functions": 0, "replayed": 0}}[args.kind]
    truth = write_trace(args.out, args.amount * 1_000_000, **shape)
    args.out.with_name(args.out.name + ".truth.json").write_text(truth.as_json(), encoding="utf-8")
    print(truth.as_json())


if __name__ == "__main__":
    main()
