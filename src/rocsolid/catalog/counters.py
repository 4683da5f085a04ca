"""The rocprofv3 hardware counters that we use, and the sets of them that one run collects."""

from typing import Final

from rocsolid.model.device_peaks import CounterMetric, HardwareCounter
from rocsolid.model.evidence import source

_DEFS: Final = "rocprofiler-sdk, counters/yaml/counter_defs.yaml"


def _meter(counter: str, figure: CounterMetric, scale: float, text: str) -> HardwareCounter:
    return HardwareCounter(counter=counter, metric=figure, scale=scale, evidence=(source(f"{_DEFS}, {counter}", text),))


_KILOBYTES: Final = "Requests between L2 and memory times their size, divided by 1024."
_REQUESTS: Final = "Sum over all channels of the L2 cache."

HARDWARE_COUNTERS: Final = {
    meter.counter: meter
    for meter in (
        _meter(
            "OccupancyPercent",
            CounterMetric.OCCUPANCY,
            0.01,
            "Wavefronts in flight, as a percentage of the most possible.",
        ),
        _meter("MeanOccupancyPerCU", CounterMetric.WAVES, 1.0, "Wavefronts in flight, divided by compute units."),
        _meter("L2CacheHit", CounterMetric.L2_HIT, 0.01, "Hits as a percentage of hits and misses."),
        _meter("TCC_HIT_sum", CounterMetric.L2_HITS, 1.0, _REQUESTS),
        _meter("TCC_MISS_sum", CounterMetric.L2_MISSES, 1.0, _REQUESTS),
        _meter("GL2C_HIT_sum", CounterMetric.L2_HITS, 1.0, _REQUESTS),
        _meter("GL2C_MISS_sum", CounterMetric.L2_MISSES, 1.0, _REQUESTS),
        _meter("FETCH_SIZE", CounterMetric.READ, 1024.0, _KILOBYTES),
        _meter("FetchSize", CounterMetric.READ, 1024.0, _KILOBYTES),
        _meter("WRITE_SIZE", CounterMetric.WRITTEN, 1024.0, _KILOBYTES),
        _meter("WriteSize", CounterMetric.WRITTEN, 1024.0, _KILOBYTES),
    )
}

# One set of counters per run, because a GPU counts only a few events at once. Each entry lists alternatives: when
# the GPU cannot count the first set, the next one is tried.
COUNTER_RUNS: Final[tuple[tuple[tuple[str, ...], ...], ...]] = (
    (("OccupancyPercent",), ("MeanOccupancyPerCU",)),
    (("TCC_HIT_sum", "TCC_MISS_sum"), ("L2CacheHit",)),
    (("FETCH_SIZE", "WRITE_SIZE"),),
)
