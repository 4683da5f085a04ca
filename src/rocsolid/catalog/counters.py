"""Hardware counters of rocprofv3: what each one measures, and which ones to collect."""

from typing import Final

from rocsolid.model.device_peaks import Figure, Meter
from rocsolid.model.evidence import source

_DEFS: Final = "rocprofiler-sdk, counters/yaml/counter_defs.yaml"


def _meter(counter: str, figure: Figure, scale: float, statement: str) -> Meter:
    return Meter(counter=counter, figure=figure, scale=scale, evidence=(source(f"{_DEFS}, {counter}", statement),))


_KILOBYTES: Final = "Requests between L2 and memory, times their size, divided by 1024."
_REQUESTS: Final = "Sum over all channels of the L2 cache."

METERS: Final = {
    meter.counter: meter
    for meter in (
        _meter("OccupancyPercent", Figure.OCCUPANCY, 0.01, "Wavefronts in flight, as a percentage of the maximum."),
        _meter("MeanOccupancyPerCU", Figure.WAVES, 1.0, "Wavefronts in flight, divided by compute units."),
        _meter("L2CacheHit", Figure.L2_HIT, 0.01, "Hits as a percentage of hits and misses."),
        _meter("TCC_HIT_sum", Figure.L2_HITS, 1.0, _REQUESTS),
        _meter("TCC_MISS_sum", Figure.L2_MISSES, 1.0, _REQUESTS),
        _meter("GL2C_HIT_sum", Figure.L2_HITS, 1.0, _REQUESTS),
        _meter("GL2C_MISS_sum", Figure.L2_MISSES, 1.0, _REQUESTS),
        _meter("FETCH_SIZE", Figure.READ, 1024.0, _KILOBYTES),
        _meter("FetchSize", Figure.READ, 1024.0, _KILOBYTES),
        _meter("WRITE_SIZE", Figure.WRITTEN, 1024.0, _KILOBYTES),
        _meter("WriteSize", Figure.WRITTEN, 1024.0, _KILOBYTES),
    )
}

# One profiler run each, because a GPU counts only a few events at once. If the first alternative of a run is not available,
# the next one is used.
RUNS: Final[tuple[tuple[tuple[str, ...], ...], ...]] = (
    (("OccupancyPercent",), ("MeanOccupancyPerCU",)),
    (("TCC_HIT_sum", "TCC_MISS_sum"), ("L2CacheHit",)),
    (("FETCH_SIZE", "WRITE_SIZE"),),
)
