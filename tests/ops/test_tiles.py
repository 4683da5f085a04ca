"""The choice of tiles: the measured ones, the estimate for all others, and tuning, whose result is kept."""

import dataclasses
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.ops.test_shipped import skip_unless_interpreted
from tests.support import ROOT, clean_environ, run_python

pytestmark = pytest.mark.torch
torch: Any = pytest.importorskip("torch")
triton: Any = pytest.importorskip("triton")

from rocsolid.ops import split_matmul  # noqa: E402
from rocsolid.ops.shipped import tiles  # noqa: E402
from rocsolid.ops.shipped.device import Gpu  # noqa: E402
from rocsolid.ops.shipped.tiles import Tile, attention_tiles, product_tiles  # noqa: E402

H200 = Gpu(32, 132, is_rdna=False, has_pdl=True, shared_bytes=232448, name="NVIDIA H200")
BERT = ((128, 768, 768), (128, 3072, 768), (64, 768, 768), (197, 3072, 768), (50, 1024, 1024))


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)  # fails on a build without CUDA
    tiles.known_tile.cache_clear()
    yield
    tiles.known_tile.cache_clear()


@pytest.mark.parametrize(("rows", "inner", "columns"), BERT)
def test_programs_of_a_product_in_parts_fill_the_gpu_once_or_twice(rows: int, inner: int, columns: int) -> None:
    tile = product_tiles(rows, inner, columns, H200)[0]
    programs = -(-rows // tile.rows) * -(-columns // tile.columns) * tile.splits
    assert 132 / 2 <= programs <= 2 * 132
    assert tile.splits > 1
    assert inner / tile.splits >= 128


def test_tiles_stay_within_the_shared_memory_and_the_size_of_the_product() -> None:
    small = H200._replace(shared_bytes=65536)
    for tile in product_tiles(20, 4096, 40, small, gated=True):
        assert tile.stages * (tile.rows + 2 * tile.columns) * tile.inner * 2 <= 65536
        assert tile.rows <= 32
        assert tile.columns <= 64
    for tile in attention_tiles(8, 1, 64, 128, small):
        assert tile.rows == 16
        assert tile.columns <= 64


def test_few_keys_are_not_split() -> None:
    """BERT: 24 blocks of 64 queries would leave most of the GPU idle, and two splits would need a second kernel."""
    bert, denoiser = (attention_tiles(*shape, H200)[0] for shape in ((12, 128, 128, 64), (8, 50, 850, 128)))
    assert (bert.splits, bert.rows) == (1, 16)
    assert 4 <= denoiser.splits <= 8
    assert attention_tiles(8, 20, 128, 64, H200, 2)[0].splits == 2, "as asked for"


def test_rdna_gets_small_tiles() -> None:
    rdna = Gpu(32, 96, is_rdna=True)
    assert max(t.rows * t.columns * t.inner for t in product_tiles(128, 768, 768, rdna)) == 32 * 32 * 64
    assert {t[:2] for t in attention_tiles(12, 128, 128, 64, rdna)} == {(32, 16)}


def test_the_table_contains_tiles_that_can_run() -> None:
    table = json.loads(Path(tiles.__file__).with_name("tiles.json").read_text(encoding="utf-8"))
    for chip, found in table["tiles"].items():
        assert table["measured"][chip], "evidence"
        for key, values in found.items():
            tile = Tile(*values)
            assert tiles.known_tile(chip, key) == tile
            assert all(size & (size - 1) == 0 for size in (tile.rows, tile.columns, tile.inner, tile.warps))


def test_a_measured_tile_is_preferred(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = Tile(32, 32, 64, 3, 8, 2)
    key = tiles.product_key("split_matmul", 120, 768, 768, torch.float16)
    assert key == tiles.product_key("split_matmul", 128, 768, 768, torch.bfloat16)
    monkeypatch.setattr(tiles, "_table", lambda: {H200.name: {key: measured}})
    monkeypatch.setattr(split_matmul, "gpu", lambda _: H200)
    estimated = product_tiles(128, 768, 768, H200)

    assert tiles.choose(key, H200, lambda: estimated, print) == measured
    assert tiles.choose(key, H200, lambda: estimated, print, 3) == measured
    assert tiles.choose(key, H200, lambda: estimated, print, 5) == estimated[0], "the graph has five parts"
    assert tiles.choose(key, H200._replace(name="another"), lambda: estimated, print) == estimated[0]
    assert split_matmul.best_splits(128, 768, 768, torch.device("cpu")) == 3


@dataclasses.dataclass
class Bench:
    """Stands in for the GPU: a tile with eight warps is the fastest, one with two stages does not fit."""

    ran: list[Tile] = dataclasses.field(default_factory=list)

    def run(self, tile: Tile) -> None:
        self.ran.append(tile)
        if tile.stages == 2:
            raise triton.runtime.errors.OutOfResources(1, 2, "shared memory")

    def do_bench(self, call: Any, **_: Any) -> float:
        call()
        return 1.0 if self.ran[-1].warps == 8 else 2.0


CANDIDATES: Sequence[Tile] = [Tile(16, 16, 64, 1, 4, 3), Tile(16, 16, 64, 1, 4, 2), Tile(16, 16, 64, 1, 8, 3)]


def test_tuning_measures_once_and_keeps_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    monkeypatch.setattr(triton.testing, "do_bench", bench.do_bench)

    def choose(key: str) -> Tile:
        return tiles.choose(key, H200, lambda: CANDIDATES, bench.run)

    assert choose("a") == CANDIDATES[0]
    assert not bench.ran, "not in a tuning block"
    with tiles.tuning(60):
        assert choose("a") == CANDIDATES[2]
        tuned = len(bench.ran)
        assert choose("a") == CANDIDATES[2]
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
        assert choose("b") == CANDIDATES[0], "nothing is measured in a capture"
    assert len(bench.ran) == tuned


def test_another_process_uses_the_tuned_tile(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    monkeypatch.setattr(triton.testing, "do_bench", bench.do_bench)
    with tiles.tuning(60):
        tiles.choose("a", H200, lambda: CANDIDATES, bench.run)
    tiles.known_tile.cache_clear()
    bench.ran.clear()

    assert tiles.choose("a", H200, lambda: CANDIDATES, bench.run) == CANDIDATES[2]
    assert not bench.ran
    assert tiles.choose("a", H200._replace(name="another"), lambda: CANDIDATES, bench.run) == CANDIDATES[0]


def test_tuning_ends_with_its_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    bench, now = Bench(), [0.0]

    def slow_bench(call: Any, **_: Any) -> float:
        now[0] += 10
        return bench.do_bench(call)

    monkeypatch.setattr(triton.testing, "do_bench", slow_bench)
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with tiles.tuning(5):
        assert tiles.choose("a", H200, lambda: CANDIDATES, bench.run) == CANDIDATES[0]
        assert tiles.choose("b", H200, lambda: CANDIDATES, bench.run) == CANDIDATES[0]
    assert len(bench.ran) == 2, "the first call compiles"
    assert tiles.known_tile(H200.name, "a") is None, "not all candidates were measured"


def test_a_sweep_writes_the_fastest_tile_of_every_shape(tmp_path: Path) -> None:
    skip_unless_interpreted()
    file = tmp_path / "tiles.json"
    environ = clean_environ(TRITON_INTERPRET="1", PYTHONPATH=f"{ROOT / 'scripts'}")
    ran = run_python(str(ROOT / "tests/ops/swept.py"), str(file), env=environ)
    assert ran.code == 0, ran.err[-2000:]
    table = json.loads(file.read_text(encoding="utf-8"))
    found = {key: Tile(*values) for key, values in table["tiles"]["a chip"].items()}

    assert table["measured"]["a chip"]["triton"] == triton.__version__
    assert len(found) == 6
    assert found["linear_act 32x64x20 32 bits"].splits == 0, "torch was faster"
    assert found["linear_act gated 16x64x40 32 bits"].splits == 1
    assert ran.out.count("torch 100.00") == 5
    assert len(ran.out.splitlines()) == 1 + 6 + 1 + 1 + 6, ran.out
