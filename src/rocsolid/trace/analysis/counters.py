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
    """The GPU on which the counters were collected. Values that the file does not contain are empty or 0."""

    model: str = ""
    compute_units: int = 0
    waves_per_unit: int = 0


def counter_rows(columns: TraceColumns) -> tuple[CounterRow, ...]:
    """Return the mean of each counter of each kernel over all dispatches that were counted."""
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
    """Return the GPU that a file describes; empty when it describes GPUs of several models."""
    listed = columns.metadata.get("deviceProperties")
    gpus = (
        [entry for entry in listed if isinstance(entry, dict) and entry.get("gpu")] if isinstance(listed, list) else []
    )
    models = {
        DeviceDescription(
            model=str(entry.get("name") or ""),
            compute_units=max(0, int(entry.get("compute_units") or 0)),
            waves_per_unit=max(0, int(entry.get("waves_per_unit") or 0)),
        )
        for entry in gpus
    }
    return models.pop() if len(models) == 1 else DeviceDescription()


def hardware_utilization(
    rows: Sequence[CounterRow], device: DeviceDescription, trace_times: Mapping[str, float]
) -> HardwareUtilization | None:
    """Compute how well each kernel uses the GPU.

    `trace_times` contains the mean time of each kernel in ns, for counter files without times.
    """
    if not rows:
        return None
    unknown: list[str] = []
    peak, waves = _peaks(device, unknown)
    by_kernel: dict[str, list[CounterRow]] = {}
    for row in rows:
        by_kernel.setdefault(row.kernel, []).append(row)
    kernels = [
        _utilization(kernel, kernel_rows, peak, waves, trace_times.get(_without_suffix(kernel)))
        for kernel, kernel_rows in by_kernel.items()
    ]
    for name, counters in _NEEDED_COUNTERS.items():
        missing = sum(getattr(kernel, name) is None for kernel in kernels)
        if missing:
            which = "" if missing == len(kernels) else f" of {missing} of {len(kernels)} kernels"
            unknown.append(
                f"{_LABELS[name]}{which} unknown: it needs the counters {counters}, which this run did not collect"
            )
    without_time = sum(kernel.bytes is not None and kernel.time_ns is None for kernel in kernels)
    if without_time:
        unknown.append(
            f"bandwidth of {without_time} of {len(kernels)} kernels unknown: no file contains the durations of these kernels"
        )
    return HardwareUtilization(
        chip=device.model,
        compute_units=device.compute_units,
        waves_per_unit=waves,
        peak_gb_per_s=peak,
        kernels=tuple(sorted(kernels, key=lambda k: (-(k.time_ns or 0.0) * k.dispatches, k.kernel))),
        unknown=tuple(unknown),
    )


def _peaks(device: DeviceDescription, unknown: list[str]) -> tuple[float | None, int | None]:
    """Return the peak bandwidth of the GPU and its wavefronts per compute unit, from the file or else the catalogue.

    If the peak bandwidth is not known, the reason is added to `unknown`.
    """
    card = find_peaks(device.model)
    waves = device.waves_per_unit or (card.waves_per_unit if card else 0)
    if not device.model:
        unknown.append("peak bandwidth unknown: the file does not name the GPU, or names GPUs of several models")
    elif card is None:
        unknown.append(f"peak bandwidth of {device.model} unknown: the catalogue has no documented value for this GPU")
    elif device.compute_units and card.compute_units and device.compute_units != card.compute_units:
        unknown.append(
            f"peak bandwidth unknown: the device has {device.compute_units} compute units, but an {card.name} has "
            f"{card.compute_units}; it may be a partition, which shares the memory with the other partitions"
        )
        return None, waves or None
    return card.memory_gb_per_s if card else None, waves or None


def _utilization(
    kernel: str, rows: Iterable[CounterRow], peak: float | None, waves: int | None, trace_time_ns: float | None
) -> KernelUtilization:
    values: dict[CounterMetric, float] = {}
    kernel_rows = list(rows)
    for row in kernel_rows:
        counter = HARDWARE_COUNTERS.get(row.counter)
        if counter is not None:
            values.setdefault(counter.metric, row.mean * counter.scale)
    occupancy = values.get(CounterMetric.OCCUPANCY)
    if occupancy is None and waves and CounterMetric.WAVES in values:
        occupancy = values[CounterMetric.WAVES] / waves
    moved_bytes = (
        values[CounterMetric.READ] + values[CounterMetric.WRITTEN]
        if {CounterMetric.READ, CounterMetric.WRITTEN} <= values.keys()
        else None
    )
    time_ns = _mean_time(kernel_rows, trace_time_ns)
    rate = moved_bytes / time_ns if moved_bytes is not None and time_ns else None
    return KernelUtilization(
        kernel=kernel,
        dispatches=max(row.count for row in kernel_rows),
        time_ns=time_ns,
        occupancy=occupancy,
        l2_hit_rate=_hit_rate(values),
        bytes=moved_bytes,
        gb_per_s=rate,
        peak_fraction=rate / peak if rate is not None and peak else None,
    )


def _hit_rate(values: Mapping[CounterMetric, float]) -> float | None:
    if {CounterMetric.L2_HITS, CounterMetric.L2_MISSES} <= values.keys():
        requests = values[CounterMetric.L2_HITS] + values[CounterMetric.L2_MISSES]
        return values[CounterMetric.L2_HITS] / requests if requests else None
    return values.get(CounterMetric.L2_HIT)


def _mean_time(rows: Sequence[CounterRow], trace_time_ns: float | None) -> float | None:
    """Return the mean time of a dispatch: in the run that counted bytes, else in any counter run, else in the trace."""
    byte_rows = [
        row
        for row in rows
        if row.counter in HARDWARE_COUNTERS
        and HARDWARE_COUNTERS[row.counter].metric in (CounterMetric.READ, CounterMetric.WRITTEN)
    ]
    for candidates in (byte_rows, rows):
        known = [row.time_ns for row in candidates if row.time_ns is not None]
        if known:
            return fmean(known)
    return trace_time_ns


def _without_suffix(kernel: str) -> str:
    """Return the kernel name without the suffix of a kernel descriptor."""
    return kernel.removesuffix(".kd")


def kernel_times(file: TraceFile) -> dict[str, float]:
    """Return the mean time in ns of each kernel, on the device with the most kernel time."""
    busiest = max(file.devices, key=lambda device: device.kernel_time_ns, default=None)
    return {_without_suffix(row.name): row.mean_ns for row in busiest.kernels} if busiest else {}


def merge_counter_files(files: Sequence[TraceFile]) -> tuple[TraceFile, ...]:
    """Merge files that contain only counters into the file with kernels, if exactly one file has kernels."""
    files_with_kernels = [f for f in files if f.devices]
    if len(files_with_kernels) != 1 or not files_with_kernels[0].producer.startswith("rocp"):
        return tuple(files)
    (main,) = files_with_kernels
    counter_files = [f for f in files if not f.devices and _belongs_to(f, main)]
    if not counter_files:
        return tuple(files)
    rows = (*main.counters, *(row for f in counter_files for row in f.counters))
    known = [f.hardware for f in (*counter_files, main) if f.hardware and f.hardware.chip]
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
    damage = [f"{f.file}: {text}" for f in counter_files for text in f.damage]
    damage += [f"{f.file}: {f.skipped_events:,} broken rows skipped" for f in counter_files if f.skipped_events]
    merged = replace(
        main,
        counters=rows,
        hardware=hardware_utilization(rows, device, kernel_times(main)),
        damage=(*main.damage, *damage),
        counter_files=tuple(f.file for f in counter_files),
    )
    return tuple(merged if f is main else f for f in files if f not in counter_files)


def _belongs_to(counter_file: TraceFile, main: TraceFile) -> bool:
    """Return whether counters can belong to a trace: both have a kernel name in common, and not different GPU models."""
    names = {_without_suffix(row.name) for device in main.devices for row in device.kernels}
    if not any(_without_suffix(row.kernel) in names for row in counter_file.counters):
        return False
    chip = counter_file.hardware.chip if counter_file.hardware else ""
    models = {device.model for device in main.devices} - {""}
    return not chip or not models or chip in models
