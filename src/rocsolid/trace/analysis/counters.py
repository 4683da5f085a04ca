"""Occupancy, L2 hit rate and memory bandwidth of each kernel, from rocprofv3 hardware counters."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Final

from rocsolid.catalog.counters import HARDWARE_COUNTERS
from rocsolid.catalog.device_peaks import find_peaks
from rocsolid.model.device_peaks import CounterMetric
from rocsolid.model.trace import CounterRow, HardwareUtilization, KernelUtilization, TraceFile
from rocsolid.trace.columns import TraceColumns

_NEEDED_COUNTERS: Final = {
    "occupancy": "OccupancyPercent or MeanOccupancyPerCU",
    "l2_hit_rate": "TCC_HIT_sum and TCC_MISS_sum, or L2CacheHit",
    "bytes": "FETCH_SIZE and WRITE_SIZE",
}
_LABELS: Final = {"occupancy": "occupancy", "l2_hit_rate": "L2 hit rate", "bytes": "bandwidth"}


@dataclass(frozen=True, kw_only=True)
class DeviceDescription:
    """The GPU of the counters, as the file describes it; empty or 0 when it does not."""

    model: str = ""
    compute_units: int = 0
    waves_per_unit: int = 0


def counter_rows(columns: TraceColumns) -> tuple[CounterRow, ...]:
    """The mean of each counter of each kernel over all counted dispatches."""
    return tuple(
        CounterRow(
            kernel=kernel,
            counter=counter,
            count=total.count,
            mean=total.total / total.count,
            time_ns=total.time_ns / total.timed if total.timed else None,
        )
        for kernel, counters in columns.counters.items()
        for counter, total in counters.items()
    )


def described_device(columns: TraceColumns) -> DeviceDescription:
    """The GPU that a file describes; empty when it describes GPUs of several models."""
    listed = columns.metadata.get("deviceProperties")
    entries = [e for e in listed if isinstance(e, dict) and e.get("gpu")] if isinstance(listed, list) else []
    models = {
        DeviceDescription(
            model=str(entry.get("name") or ""),
            compute_units=max(0, int(entry.get("compute_units") or 0)),
            waves_per_unit=max(0, int(entry.get("waves_per_unit") or 0)),
        )
        for entry in entries
    }
    return models.pop() if len(models) == 1 else DeviceDescription()


def hardware_utilization(
    rows: Sequence[CounterRow], device: DeviceDescription, times: Mapping[str, float]
) -> HardwareUtilization | None:
    """The utilization by each kernel. `times` is used for kernels whose counted dispatches have no time."""
    if not rows:
        return None
    unknown: list[str] = []
    peak, waves = _peaks(device, unknown)
    by_kernel: dict[str, list[CounterRow]] = {}
    for row in rows:
        by_kernel.setdefault(row.kernel, []).append(row)
    kernels = [_utilization(kernel, mine, peak, waves, times.get(_bare(kernel))) for kernel, mine in by_kernel.items()]
    for name, counters in _NEEDED_COUNTERS.items():
        missing = sum(getattr(kernel, name) is None for kernel in kernels)
        if missing:
            of = "" if missing == len(kernels) else f" of {missing} of {len(kernels)} kernels"
            unknown.append(f"{_LABELS[name]}{of} unknown: needs {counters}, not counted in this run")
    without_time = sum(kernel.bytes is not None and kernel.time_ns is None for kernel in kernels)
    if without_time:
        unknown.append(f"bandwidth of {without_time} of {len(kernels)} kernels unknown: no file has their times")
    return HardwareUtilization(
        chip=device.model,
        compute_units=device.compute_units,
        waves_per_unit=waves,
        peak_gb_per_s=peak,
        kernels=tuple(sorted(kernels, key=lambda k: (-(k.time_ns or 0.0) * k.dispatches, k.kernel))),
        unknown=tuple(unknown),
    )


def _peaks(device: DeviceDescription, unknown: list[str]) -> tuple[float | None, int | None]:
    """The GPU's peak bandwidth and wavefronts per compute unit; the file's own values take precedence."""
    card = find_peaks(device.model)
    waves = device.waves_per_unit or (card.waves_per_unit if card else 0)
    if not device.model:
        unknown.append("peak bandwidth unknown: the file does not name the GPU, or names GPUs of several models")
    elif card is None:
        unknown.append(f"peak bandwidth of {device.model} unknown: the catalogue has no sourced value for this GPU")
    elif device.compute_units and card.compute_units and device.compute_units != card.compute_units:
        unknown.append(
            f"peak bandwidth unknown: the device has {device.compute_units} compute units, but an {card.name} has "
            f"{card.compute_units}; it may be a partition, which shares the memory with others"
        )
        return None, waves or None
    return card.memory_gb_per_s if card else None, waves or None


def _utilization(
    kernel: str, rows: Iterable[CounterRow], peak: float | None, waves: int | None, trace_time_ns: float | None
) -> KernelUtilization:
    values: dict[CounterMetric, float] = {}
    counted: list[CounterRow] = []
    for row in rows:
        counted.append(row)
        meter = HARDWARE_COUNTERS.get(row.counter)
        if meter is not None:
            values.setdefault(meter.metric, row.mean * meter.scale)
    occupancy = values.get(CounterMetric.OCCUPANCY)
    if occupancy is None and waves and CounterMetric.WAVES in values:
        occupancy = values[CounterMetric.WAVES] / waves
    moved = (
        values[CounterMetric.READ] + values[CounterMetric.WRITTEN]
        if {CounterMetric.READ, CounterMetric.WRITTEN} <= values.keys()
        else None
    )
    time = _time(counted, trace_time_ns)
    rate = moved / time if moved is not None and time else None
    return KernelUtilization(
        kernel=kernel,
        dispatches=max(row.count for row in counted),
        time_ns=time,
        occupancy=occupancy,
        l2_hit_rate=_hit_rate(values),
        bytes=moved,
        gb_per_s=rate,
        peak_fraction=rate / peak if rate is not None and peak else None,
    )


def _hit_rate(values: Mapping[CounterMetric, float]) -> float | None:
    if {CounterMetric.L2_HITS, CounterMetric.L2_MISSES} <= values.keys():
        requests = values[CounterMetric.L2_HITS] + values[CounterMetric.L2_MISSES]
        return values[CounterMetric.L2_HITS] / requests if requests else None
    return values.get(CounterMetric.L2_HIT)


def _time(rows: Sequence[CounterRow], trace_time_ns: float | None) -> float | None:
    """The mean time of a dispatch: in the run that counted bytes, else in any counter run, else in the trace."""
    moved = [
        r
        for r in rows
        if r.counter in HARDWARE_COUNTERS
        and HARDWARE_COUNTERS[r.counter].metric in (CounterMetric.READ, CounterMetric.WRITTEN)
    ]
    for candidates in (moved, rows):
        known = [row.time_ns for row in candidates if row.time_ns is not None]
        if known:
            return fmean(known)
    return trace_time_ns


def _bare(kernel: str) -> str:
    """The kernel name without the suffix of a kernel descriptor."""
    return kernel.removesuffix(".kd")


def kernel_times(file: TraceFile) -> dict[str, float]:
    """The mean time of each kernel on the device with the most kernel time."""
    busiest = max(file.devices, key=lambda device: device.kernel_time_ns, default=None)
    return {_bare(row.name): row.mean_ns for row in busiest.kernels} if busiest else {}


def merge_counter_files(files: Sequence[TraceFile]) -> tuple[TraceFile, ...]:
    """Merge files that contain only counters into the file with the kernels, when exactly one file has kernels."""
    with_work = [f for f in files if f.devices]
    if len(with_work) != 1 or not with_work[0].producer.startswith("rocp"):
        return tuple(files)
    (main,) = with_work
    counted = [f for f in files if not f.devices and _belongs_to(f, main)]
    if not counted:
        return tuple(files)
    rows = (*main.counters, *(row for f in counted for row in f.counters))
    known = [f.hardware for f in (*counted, main) if f.hardware and f.hardware.chip]
    busiest = max(main.devices, key=lambda device: device.kernel_time_ns)
    device = (
        DeviceDescription(
            model=known[0].chip, compute_units=known[0].compute_units, waves_per_unit=known[0].waves_per_unit or 0
        )
        if known
        else DeviceDescription(
            model=busiest.model, compute_units=busiest.compute_units, waves_per_unit=busiest.waves_per_unit
        )
    )
    damage = [f"{f.file}: {text}" for f in counted for text in f.damage]
    damage += [f"{f.file}: {f.skipped_events:,} broken rows skipped" for f in counted if f.skipped_events]
    merged = replace(
        main,
        counters=rows,
        hardware=hardware_utilization(rows, device, kernel_times(main)),
        damage=(*main.damage, *damage),
        counter_files=tuple(f.file for f in counted),
    )
    return tuple(merged if f is main else f for f in files if f not in counted)


def _belongs_to(counted: TraceFile, main: TraceFile) -> bool:
    """Whether counters can belong to a trace: they share a kernel name, and the GPU model where both name it."""
    names = {_bare(row.name) for device in main.devices for row in device.kernels}
    if not any(_bare(row.kernel) in names for row in counted.counters):
        return False
    chip = counted.hardware.chip if counted.hardware else ""
    models = {device.model for device in main.devices} - {""}
    return not chip or not models or chip in models
