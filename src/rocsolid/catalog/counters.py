"""The rocprofv3 hardware counters that `rocsolid` uses, and which of them are collected in the same run."""

from typing import Final

from rocsolid.model.device_peaks import CounterMetric, HardwareCounter
from rocsolid.model.evidence import source

_DEFINITIONS: Final = "rocprofiler-sdk, counters/yaml/counter_defs.yaml"


def _counter(counter: str, metric: CounterMetric, scale: float, text: str) -> HardwareCounter:
    return HardwareCounter(
        counter=counter, metric=metric, scale=scale, evidence=(source(f"{_DEFINITIONS}, {counter}", text),)
    )


_KILOBYTES: Final = "Requests between L2 and memory times their size, in KiB."
_REQUESTS: Final = "Sum over all channels of the L2 cache."

HARDWARE_COUNTERS: Final = {
    entry.counter: entry
    for entry in (
        _counter(
            "OccupancyPercent",
            CounterMetric.OCCUPANCY,
            0.01,
            "Wavefronts in flight, as a percentage of the most possible.",
        ),
        _counter("MeanOccupancyPerCU", CounterMetric.WAVES, 1.0, "Wavefronts in flight, divided by compute units."),
        _counter("L2CacheHit", CounterMetric.L2_HIT, 0.01, "Hits as a percentage of hits and misses."),
        _counter("TCC_HIT_sum", CounterMetric.L2_HITS, 1.0, _REQUESTS),
        _counter("TCC_MISS_sum", CounterMetric.L2_MISSES, 1.0, _REQUESTS),
        _counter("GL2C_HIT_sum", CounterMetric.L2_HITS, 1.0, _REQUESTS),
        _counter("GL2C_MISS_sum", CounterMetric.L2_MISSES, 1.0, _REQUESTS),
        _counter("FETCH_SIZE", CounterMetric.READ, 1024.0, _KILOBYTES),
        _counter("FetchSize", CounterMetric.READ, 1024.0, _KILOBYTES),
        _counter("WRITE_SIZE", CounterMetric.WRITTEN, 1024.0, _KILOBYTES),
        _counter("WriteSize", CounterMetric.WRITTEN, 1024.0, _KILOBYTES),
    )
}

# One set of counters per run, because a GPU counts only a few events at the same time. Each entry is a list of
# alternatives: if the GPU cannot count the first set, the next one is tried.
COUNTER_RUNS: Final[tuple[tuple[tuple[str, ...], ...], ...]] = (
    (("OccupancyPercent",), ("MeanOccupancyPerCU",)),
    (("TCC_HIT_sum", "TCC_MISS_sum"), ("L2CacheHit",)),
    (("FETCH_SIZE", "WRITE_SIZE"),),
)
