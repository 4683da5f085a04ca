"""Graph networks of torch_geometric: every batch has another number of nodes and edges."""

from typing import Any

import pytest

pytest.importorskip("torch_geometric")
import torch
from tests.programs.support import Comparison
from torch import nn

SIZES = ((6, 12), (6, 12), (6, 12), (9, 20), (6, 12), (4, 0), (9, 20))


def _graphs(nodes: int, edges: int, graphs: int = 2) -> dict[str, Any]:
    return {
        "x": torch.randn(nodes, 8),
        "edge_index": torch.randint(0, nodes, (2, edges)),
        "batch": torch.arange(nodes) * graphs // nodes,
    }


class Gcn(nn.Module):  # type: ignore[misc]
    """Two convolutions and a mean over each graph."""

    def __init__(self, convolution: str) -> None:
        from torch_geometric import nn as pyg

        super().__init__()
        kind = getattr(pyg, convolution)
        self.first, self.second, self.out = kind(8, 16), kind(16, 16), nn.Linear(16, 3)

    def forward(self, x: Any, edge_index: Any, batch: Any, size: Any = None) -> Any:
        from torch_geometric.nn import global_mean_pool

        x = self.first(x, edge_index).relu()
        x = self.second(x, edge_index).relu()
        return self.out(global_mean_pool(x, batch, size))


class TopK(nn.Module):  # type: ignore[misc]
    """Keeps the best half of the nodes of each graph."""

    def __init__(self) -> None:
        from torch_geometric.nn import GraphConv, TopKPooling

        super().__init__()
        self.conv, self.pool, self.out = GraphConv(8, 16), TopKPooling(16, ratio=0.5), nn.Linear(16, 3)

    def forward(self, x: Any, edge_index: Any, batch: Any) -> Any:
        from torch_geometric.nn import global_max_pool

        x = self.conv(x, edge_index).relu()
        x, edge_index, _, batch, _, _ = self.pool(x, edge_index, None, batch)
        return self.out(global_max_pool(x, batch)), edge_index


CONVOLUTIONS = ["GCNConv", "SAGEConv", "GATConv", "GraphConv"]


@pytest.mark.parametrize("convolution", CONVOLUTIONS)
def test_number_of_graphs_given(compare: Comparison, convolution: str) -> None:
    compare.module(Gcn(convolution).eval())
    for nodes, edges in SIZES:
        compare.call(**_graphs(nodes, edges), size=2)
    compare.change("in-place edit", lambda m: m.out.weight.data.mul_(2))
    for nodes, edges in SIZES[:3]:
        compare.call(**_graphs(nodes, edges), size=2)
    compare.change("aggregation", lambda m: setattr(m.second, "aggr_module", _max_aggregation()))
    for nodes, edges in SIZES[:3]:
        compare.call(**_graphs(nodes, edges), size=2)
    compare.finish(refused="host sync|data-dependent shape|host copy")


def _max_aggregation() -> Any:
    from torch_geometric.nn import MaxAggregation

    return MaxAggregation()


@pytest.mark.parametrize("convolution", CONVOLUTIONS)
def test_number_of_graphs_from_the_batch(compare: Comparison, convolution: str) -> None:
    """`global_mean_pool` without `size` reads `batch.max()` on the CPU."""
    compare.module(Gcn(convolution).eval())
    for (nodes, edges), graphs in zip(SIZES, (2, 2, 3, 2, 1, 2, 3), strict=True):
        compare.call(**_graphs(nodes, edges, graphs))
    compare.finish(refused="(host sync|data-dependent shape|host copy): ")


def test_cached_convolution(compare: Comparison) -> None:
    """`cached=True` keeps the normalised adjacency of the first call: eager uses it for every later graph, too."""
    from torch_geometric.nn import GCNConv

    compare.module(GCNConv(8, 4, cached=True).eval())
    edges = [torch.randint(0, 6, (2, 12)) for _ in range(2)]
    for index in (0, 0, 0, 1, 1):
        compare.call(torch.randn(6, 8), edges[index])
    compare.change("reset_parameters", lambda m: m.reset_parameters())
    for index in (1, 1, 0):
        compare.call(torch.randn(6, 8), edges[index])
    compare.finish(refused="side effect|host sync|data-dependent shape")


def test_top_k_pooling(compare: Comparison) -> None:
    compare.module(TopK().eval())
    for nodes, edges in SIZES[:5]:
        compare.call(**_graphs(nodes, edges))
    compare.change("ratio", lambda m: setattr(m.pool, "ratio", 0.8))
    for nodes, edges in SIZES[:3]:
        compare.call(**_graphs(nodes, edges))
    compare.finish(refused="(host sync|data-dependent shape|host copy): ")


def test_batch_object_as_an_argument(compare: Comparison) -> None:
    from torch_geometric.data import Batch, Data

    class OnBatch(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = Gcn("GCNConv")

        def forward(self, data: Any) -> Any:
            return self.net(data.x, data.edge_index, data.batch, data.num_graphs)

    compare.module(OnBatch().eval())
    for nodes in (3, 3, 3, 5, 3):
        graphs = [Data(x=torch.randn(nodes, 8), edge_index=torch.randint(0, nodes, (2, 6))) for _ in range(2)]
        compare.call(Batch.from_data_list(graphs))
    compare.finish(refused="argument: |host sync|data-dependent shape")
