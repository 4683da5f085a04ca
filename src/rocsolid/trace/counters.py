"""Hardware counters of each kernel into figures a person can hold against the chip: occupancy, cache hits, bandwidth."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Final

from rocsolid.catalog.counters import HARDWARE_COUNTERS
from rocsolid.catalog.device_peaks import find_peaks
from rocsolid.model.device_peaks import CounterMetric
from rocsolid.model.trace import CounterRow, HardwareUse, KernelUse, TraceFile
from rocsolid.trace.columns import Columns

_SOUGHT: Final = {
    "occupancy": "OccupancyPercent or MeanOccupancyPerCU",
    "l2_hit": "TCC_HIT_sum and TCC_MISS_sum, or L2CacheHit",
    "bytes": "FETCH_SIZE and WRITE_SIZE",
}
_WORDS: Final = {"occupancy": "the occupancy", "l2_hit": "the hit rate of the L2 cache", "bytes": "the bandwidth"}


@dataclass(frozen=True, kw_only=True)
class Seen:
    """The device whose counters they are, as the file describes it; empty or 0 where it does not."""

    model: str = ""
    compute_units: int = 0
    waves_per_unit: int = 0


def counter_rows(columns: Columns) -> tuple[CounterRow, ...]:
    """Each counter of each kernel, over all dispatches that were counted."""
    return tuple(
        CounterRow(
            kernel=kernel,
            counter=counter,
            count=tally.count,
            mean=tally.total / tally.count,
            time_ns=tally.time_ns / tally.timed if tally.timed else None,
        )
        for kernel, counters in columns.counters.items()
        for counter, tally in counters.items()
    )


def seen_device(columns: Columns) -> Seen:
    """The one kind of GPU in a file; nothing where there are several kinds."""
    listed = columns.metadata.get("deviceProperties")
    entries = [e for e in listed if isinstance(e, dict) and e.get("gpu")] if isinstance(listed, list) else []
    kinds = {
        Seen(
            model=str(entry.get("name") or ""),
            compute_units=max(0, int(entry.get("compute_units") or 0)),
            waves_per_unit=max(0, int(entry.get("waves_per_unit") or 0)),
        )
        for entry in entries
    }
    return kinds.pop() if len(kinds) == 1 else Seen()


def hardware_use(rows: Sequence[CounterRow], seen: Seen, times: Mapping[str, float]) -> HardwareUse | None:
    """What the counters say of each kernel; `times` is used for kernels whose counted dispatches carry no time."""
    if not rows:
        return None
    unknown: list[str] = []
    peak, waves = _peaks(seen, unknown)
    by_kernel: dict[str, list[CounterRow]] = {}
    for row in rows:
        by_kernel.setdefault(row.kernel, []).append(row)
    uses = [_use(kernel, mine, peak, waves, times.get(_bare(kernel))) for kernel, mine in by_kernel.items()]
    for name, counters in _SOUGHT.items():
        without = sum(getattr(use, name) is None for use in uses)
        if without:
            of = "" if without == len(uses) else f" of {without} of {len(uses)} kernels"
            unknown.append(f"{_WORDS[name]}{of} is unknown: it needs {counters}, which were not counted")
    timeless = sum(use.bytes is not None and use.time_ns is None for use in uses)
    if timeless:
        unknown.append(
            f"the bandwidth of {timeless} of {len(uses)} kernels is unknown: nothing tells how long dispatches took"
        )
    return HardwareUse(
        chip=seen.model,
        compute_units=seen.compute_units,
        waves_per_unit=waves,
        peak_gb_per_s=peak,
        kernels=tuple(sorted(uses, key=lambda use: (-(use.time_ns or 0.0) * use.dispatches, use.kernel))),
        unknown=tuple(unknown),
    )


def _peaks(seen: Seen, unknown: list[str]) -> tuple[float | None, int | None]:
    """The chip's bandwidth and wavefronts a compute unit; what the file itself says of the device goes first."""
    chip = find_peaks(seen.model)
    waves = seen.waves_per_unit or (chip.waves_per_unit if chip else 0)
    if not seen.model:
        unknown.append("the chip is unknown: the file does not name one kind of GPU, so no peak can be given")
    elif chip is None:
        unknown.append(f"the peak bandwidth of {seen.model} is unknown: the catalogue has no figure with a source")
    elif seen.compute_units and chip.compute_units and seen.compute_units != chip.compute_units:
        unknown.append(
            f"the peak bandwidth is unknown: the device has {seen.compute_units} compute units, an {chip.name} has "
            f"{chip.compute_units}; it may be a partition, which shares the memory with others"
        )
        return None, waves or None
    return chip.memory_gb_per_s if chip else None, waves or None


def _use(
    kernel: str, rows: Iterable[CounterRow], peak: float | None, waves: int | None, otherwise: float | None
) -> KernelUse:
    figures: dict[CounterMetric, float] = {}
    counted: list[CounterRow] = []
    for row in rows:
        counted.append(row)
        meter = HARDWARE_COUNTERS.get(row.counter)
        if meter is not None:
            figures.setdefault(meter.metric, row.mean * meter.scale)
    occupancy = figures.get(CounterMetric.OCCUPANCY)
    if occupancy is None and waves and CounterMetric.WAVES in figures:
        occupancy = figures[CounterMetric.WAVES] / waves
    moved = (
        figures[CounterMetric.READ] + figures[CounterMetric.WRITTEN]
        if {CounterMetric.READ, CounterMetric.WRITTEN} <= figures.keys()
        else None
    )
    time = _time(counted, otherwise)
    rate = moved / time if moved is not None and time else None
    return KernelUse(
        kernel=kernel,
        dispatches=max(row.count for row in counted),
        time_ns=time,
        occupancy=occupancy,
        l2_hit=_hit_rate(figures),
        bytes=moved,
        gb_per_s=rate,
        of_peak=rate / peak if rate is not None and peak else None,
    )


def _hit_rate(figures: Mapping[CounterMetric, float]) -> float | None:
    if {CounterMetric.L2_HITS, CounterMetric.L2_MISSES} <= figures.keys():
        requests = figures[CounterMetric.L2_HITS] + figures[CounterMetric.L2_MISSES]
        return figures[CounterMetric.L2_HITS] / requests if requests else None
    return figures.get(CounterMetric.L2_HIT)


def _time(rows: Sequence[CounterRow], otherwise: float | None) -> float | None:
    """How long a dispatch took while its bytes were counted; else while anything was; else in another run."""
    moved = [
        r
        for r in rows
        if r.counter in HARDWARE_COUNTERS
        and HARDWARE_COUNTERS[r.counter].metric in (CounterMetric.READ, CounterMetric.WRITTEN)
    ]
    for among in (moved, rows):
        known = [row.time_ns for row in among if row.time_ns is not None]
        if known:
            return fmean(known)
    return otherwise


def _bare(kernel: str) -> str:
    """Without the ending that names a kernel's descriptor."""
    return kernel.removesuffix(".kd")


def kernel_times(file: TraceFile) -> dict[str, float]:
    """The mean time of each kernel on the file's busiest device."""
    busiest = max(file.devices, key=lambda device: device.kernel_time_ns, default=None)
    return {_bare(row.name): row.mean_ns for row in busiest.kernels} if busiest else {}


def _of_the_same(counted: TraceFile, main: TraceFile) -> bool:
    """Whether counters can be those of a trace: of its kernels, and of a chip of its kind."""
    names = {_bare(row.name) for device in main.devices for row in device.kernels}
    if not any(_bare(row.kernel) in names for row in counted.counters):
        return False
    chip = counted.hardware.chip if counted.hardware else ""
    models = {device.model for device in main.devices} - {""}
    return not chip or not models or chip in models


def joined(files: Sequence[TraceFile]) -> tuple[TraceFile, ...]:
    """Files that hold counters and no work become part of the one that holds the work, where there is just one."""
    working = [f for f in files if f.devices]
    if len(working) != 1 or not working[0].producer.startswith("rocp"):
        return tuple(files)
    (main,) = working
    counted = [f for f in files if not f.devices and _of_the_same(f, main)]
    if not counted:
        return tuple(files)
    rows = (*main.counters, *(row for f in counted for row in f.counters))
    known = [f.hardware for f in (*counted, main) if f.hardware and f.hardware.chip]
    busiest = max(main.devices, key=lambda device: device.kernel_time_ns)
    seen = (
        Seen(model=known[0].chip, compute_units=known[0].compute_units, waves_per_unit=known[0].waves_per_unit or 0)
        if known
        else Seen(model=busiest.model, compute_units=busiest.compute_units, waves_per_unit=busiest.waves_per_unit)
    )
    said = [f"{f.file}: {text}" for f in counted for text in f.damage]
    said += [f"{f.file}: {f.skipped_events:,} rows are broken" for f in counted if f.skipped_events]
    whole = replace(
        main,
        counters=rows,
        hardware=hardware_use(rows, seen, kernel_times(main)),
        damage=(*main.damage, *said),
        joined=tuple(f.file for f in counted),
    )
    return tuple(whole if f is main else f for f in files if f not in counted)
