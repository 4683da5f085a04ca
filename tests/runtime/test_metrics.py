"""The counters of functions in Prometheus's text format, in a registry of prometheus_client, and in OpenTelemetry."""

from typing import Any

import pytest

import rocsolid as rs
from rocsolid.errors import UsageError
from rocsolid.integrations.metrics import PrometheusCollector, prometheus_text, register_with_opentelemetry

pytest.importorskip("torch")
import torch

pytestmark = pytest.mark.torch


@pytest.fixture
def functions() -> dict[str, Any]:
    """A function of each kind; the captured one was called three times."""
    captured = rs.capture(lambda x: x + 1, backend="record")
    for _ in range(3):
        captured(torch.ones(2))
    model = torch.nn.Linear(2, 2)
    compiled = rs.compile(model, backend="eager")
    with torch.no_grad():
        compiled(torch.ones(2))
        return {
            "captured": captured,
            "compiled": compiled,
            "optimized": rs.optimize(model, torch.ones(2), budget_s=0),
        }


def test_prometheus_reads_the_text(functions: dict[str, Any]) -> None:
    parser = pytest.importorskip("prometheus_client.parser")
    text = prometheus_text(**functions)
    families = {family.name: family for family in parser.text_string_to_metric_families(text)}
    replays = families["rocsolid_replays"]
    assert (replays.type, replays.documentation) == ("counter", "calls answered by a graph")
    assert [(s.labels, s.value) for s in replays.samples] == [({"function": "captured"}, 2.0)]
    assert families["rocsolid_eager_calls"].samples[0].labels == {"function": "captured", "reason": "first call"}
    assert families["rocsolid_graphs"].type == "gauge"
    assert families["rocsolid_form"].samples[0].labels == {"function": "optimized", "form": "eager"}
    both = {sample.labels["function"] for sample in families["rocsolid_refused_compiles"].samples}
    assert both == {"compiled", "optimized"}
    assert text.count("# TYPE rocsolid_refused_compiles_total") == 1


def test_an_optimized_function_has_the_counters_of_its_graph(functions: dict[str, Any]) -> None:
    fast = rs.optimize(torch.sin, torch.ones(2), budget_s=0)
    fast.use(functions["captured"])
    text = prometheus_text(fast=fast)

    assert 'rocsolid_replays_total{function="fast"} 2' in text
    assert 'rocsolid_check_failures_total{function="fast"} 0' in text
    assert 'rocsolid_late_compiles_total{function="fast"} 0' in text


def test_a_registry_collects_them_anew_for_each_scrape(functions: dict[str, Any]) -> None:
    client = pytest.importorskip("prometheus_client")
    registry = client.CollectorRegistry()
    registry.register(PrometheusCollector(**functions))
    for replays in (2, 3):
        labels = {"function": "captured"}
        assert registry.get_sample_value("rocsolid_replays_total", labels) == replays
        functions["captured"](torch.ones(2))


def test_opentelemetry_observes_them(functions: dict[str, Any]) -> None:
    pytest.importorskip("opentelemetry.sdk")
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    reader = InMemoryMetricReader()
    provider = MeterProvider(metric_readers=[reader])
    register_with_opentelemetry(provider.get_meter("server"), **functions)
    data = reader.get_metrics_data()
    assert data is not None
    metrics: dict[str, list[Any]] = {
        m.name: list(m.data.data_points) for m in data.resource_metrics[0].scope_metrics[0].metrics
    }
    (replays,) = metrics["rocsolid_replays"]
    assert (replays.value, dict(replays.attributes or {})) == (2, {"function": "captured"})
    assert len(metrics["rocsolid_refused_compiles"]) == 2
    provider.shutdown()


def test_another_function_is_refused_at_once() -> None:
    for refuses in (prometheus_text, PrometheusCollector):
        with pytest.raises(UsageError, match=r"plain: expected a function from rs\.capture, .* not Linear"):
            refuses(plain=torch.nn.Linear(2, 2))
