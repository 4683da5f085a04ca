"""The counters of captured, compiled and optimized functions in a server's metrics: Prometheus and OpenTelemetry."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from rocsolid.errors import UsageError

_HELP: Final = {
    "rocsolid_replays_total": "calls answered by a graph",
    "rocsolid_captures_total": "graphs captured",
    "rocsolid_evictions_total": "graphs freed to make room for others",
    "rocsolid_checks_total": "replays compared with eager",
    "rocsolid_check_failures_total": "replays whose result differed from eager",
    "rocsolid_graphs": "graphs in memory",
    "rocsolid_graph_bytes": "GPU memory of these graphs",
    "rocsolid_eager_calls_total": "calls that ran in eager, by reason",
    "rocsolid_generate_calls_total": "calls of generate with captured steps, by the loop that they are in",
    "rocsolid_form": "the form of the model that was chosen",
    "rocsolid_optimizing": "1 while the model is being compiled in the background",
    "rocsolid_form_not_in_use": "1 if the model runs in eager instead of the form that was chosen",
    "rocsolid_late_compiles_total": "compiles within calls that differ from the examples",
    "rocsolid_refused_compiles_total": "calls that ran in eager instead of being compiled",
    "rocsolid_compiles_total": "compiles",
    "rocsolid_recompiles_total": "compiles of something that was compiled before, for other inputs",
    "rocsolid_eager_fallbacks": "failures after which the function runs in eager",
    "rocsolid_refused_values": "settings that the plan did not allow",
}
_LABEL: Final = re.compile(r'(\w+)="([^"]*)"')


class _Sample(NamedTuple):
    labels: dict[str, str]
    value: int


def prometheus_text(**functions: Any) -> str:
    """Return the counters in Prometheus's text format. The name of each argument becomes the label `function`.

    Example:
        >>> import rocsolid as rs
        >>> from rocsolid.integrations.metrics import prometheus_text
        >>> fast = rs.capture(lambda x: x + 1, backend="record")
        >>> [line for line in prometheus_text(add=fast).splitlines() if "replays" in line][-1]
        'rocsolid_replays_total{function="add"} 0'

    """
    lines = []
    for name, samples in _by_name(functions).items():
        lines += [f"# HELP {name} {_HELP[name]}", f"# TYPE {name} {'counter' if _is_counter(name) else 'gauge'}"]
        for sample in samples:
            labels = ",".join(f'{label}="{value}"' for label, value in sample.labels.items())
            lines.append(f"{name}{{{labels}}} {sample.value}")
    return "\n".join(lines) + "\n"


class PrometheusCollector:
    """The counters for a registry of `prometheus_client`, read anew for each scrape: `REGISTRY.register(PrometheusCollector(embed=fast))`."""

    def __init__(self, **functions: Any) -> None:
        _by_name(functions)
        self._functions = functions

    def collect(self) -> Iterator[Any]:
        """Yield one metric for each counter."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        for name, samples in _by_name(self._functions).items():
            family = (CounterMetricFamily if _is_counter(name) else GaugeMetricFamily)(name, _HELP[name])
            for sample in samples:
                family.add_sample(name, sample.labels, sample.value)
            yield family


def register_with_opentelemetry(meter: Any, **functions: Any) -> None:
    """Register an observable instrument for each counter with a meter of OpenTelemetry.

    The attributes of a measurement are the labels. Counters of a reason that has not occurred yet appear with its first call.
    """
    from opentelemetry.metrics import CallbackOptions, Observation

    def callback(name: str) -> Any:
        def observe(_: CallbackOptions) -> list[Observation]:
            return [Observation(sample.value, sample.labels) for sample in _by_name(functions).get(name, ())]

        return observe

    _by_name(functions)
    for name, description in _HELP.items():
        create = meter.create_observable_counter if _is_counter(name) else meter.create_observable_gauge
        create(name.removesuffix("_total"), callbacks=[callback(name)], description=description)


def _is_counter(name: str) -> bool:
    return name.endswith("_total")


def _by_name(functions: Mapping[str, Any]) -> dict[str, list[_Sample]]:
    """Return the samples of all functions by the counter's name."""
    found: dict[str, list[_Sample]] = {}
    for function, value in functions.items():
        for report in _reports(function, value):
            for key, count in report.counters().items():
                name, _, labels = key.partition("{")
                sample = _Sample({"function": function, **dict(_LABEL.findall(labels))}, count)
                found.setdefault(name, []).append(sample)
    return found


def _reports(name: str, function: Any) -> Iterator[Any]:
    """Yield the report of a function or program from `rs.capture`, `rs.compile` or `rs.optimize`, and that of the graph of the chosen form."""
    holder = getattr(function, "rocsolid", function)
    if not hasattr(holder, "report") and hasattr(
        type(function), "_rocsolid_plain_class"
    ):  # a program, optimized in place
        yield function.explain()
        return
    if not hasattr(holder, "report"):
        msg = f"{name}: expected a function from rs.capture, rs.compile or rs.optimize, not {type(function).__name__}"
        raise UsageError(msg)
    yield holder.report()
    if hasattr(type(holder), "captured") and holder.captured is not None:
        yield holder.captured.report()
