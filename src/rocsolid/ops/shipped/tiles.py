"""How much of a result one program of a kernel computes: measured for the shapes in `tiles.json`, else by an estimate.

`scripts/measure_kernels.py --sweep` measures and writes the table. In a `tuning` block, a shape that is not in it is measured at its
first call, and the result is kept in the user's cache folder, for this GPU, version of Triton and version of the kernels.
"""

import hashlib
import itertools
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch
import triton

from rocsolid.measure import user_cache
from rocsolid.ops.shipped.device import Gpu

_MAX_SPLITS: Final = 8
_MIN_INNER: Final = 128  # of a part of a product
_ADDING_BYTES: Final = 16384  # what one multiprocessor loads while the kernel that uses the product adds its parts
_MIN_KEYS: Final = 128  # of a part of the keys, if there are many
_MANY_KEYS: Final = 512  # to split fewer costs more than it gains
_MAX_KEY_SPLITS: Final = 16
_STAGE_BYTES: Final = 98304  # of loads in flight, which hide the latency of the memory
_MAX_STAGES: Final = 6
_MOST_REGISTERS: Final = 64 * 64 * 128  # of attention: queries, keys and width; more do not fit into the registers
_MOST_TUNED: Final = 8  # candidates of a shape


class Tile(NamedTuple):
    """What one program computes, with how many warps and stages of loads."""

    rows: int  # attention: queries
    columns: int  # attention: keys at a time
    inner: int  # at a time; attention: 0
    splits: int  # in the table: 0 if torch's kernels are faster
    warps: int
    stages: int


def product_key(kind: str, rows: int, inner: int, columns: int, dtype: torch.dtype) -> str:
    """The key of a product in the table. Up to 16 rows cost the same."""
    return f"{kind} {-(-rows // 16) * 16}x{inner}x{columns} {8 * dtype.itemsize} bits"


def attention_key(heads: int, queries: int, keys: int, head_dim: int, dtype: torch.dtype) -> str:
    """The key of attention in the table; `heads` are those of the whole batch."""
    return f"attention {heads}x{queries}x{keys}x{head_dim} {8 * dtype.itemsize} bits"


@lru_cache(maxsize=4096)
def product_tiles(
    rows: int, inner: int, columns: int, gpu: Gpu, splits: int = 0, *, gated: bool = False, element_bytes: int = 2
) -> tuple[Tile, ...]:
    """Tiles of a product, the fastest by estimate first. `splits` 0: as many as are good; several cost a kernel that adds them.

    All programs run at the same time, so the one multiprocessor that loads the most decides. Its loads, and the parts that are
    written and read again, are counted in bytes.
    """
    widths = 2 if gated else 1
    counts = (splits,) if splits else range(1, max(1, min(_MAX_SPLITS, inner // _MIN_INNER)) + 1)
    # On RDNA a thread has 256 registers, and the operands of a matrix instruction are in them twice.
    sizes, inner_sizes = ((16, 32), (64,)) if gpu.is_rdna else ((16, 32, 64, 128), (64, 128))
    found = []
    for tile_rows, tile_columns, step, parts in itertools.product(
        (s for s in sizes if s < 2 * max(16, rows)), (s for s in sizes if s < 2 * max(16, columns)), inner_sizes, counts
    ):
        stage = (tile_rows + widths * tile_columns) * step * element_bytes
        stages = max(2, min(_MAX_STAGES, min(_STAGE_BYTES, gpu.shared_bytes) // stage))
        if stages * stage > gpu.shared_bytes:
            continue
        programs = -(-rows // tile_rows) * -(-columns // tile_columns) * parts
        steps = -(-inner // (parts * step))
        # A step takes at least as long as the matrix instruction and the barrier.
        cost = -(-programs // gpu.compute_units) * steps * max(stage, 8192)
        if parts > 1:
            cost += _ADDING_BYTES + 8 * parts * rows * columns // gpu.compute_units
        warps = 8 if tile_rows * tile_columns * widths > 64 * 128 else 4
        found.append((cost, parts, Tile(tile_rows, tile_columns, step, parts, warps, stages)))
    return tuple(tile for *_, tile in sorted(found))


@lru_cache(maxsize=4096)
def attention_tiles(
    heads: int, queries: int, keys: int, head_dim: int, gpu: Gpu, splits: int = 0, *, element_bytes: int = 2
) -> tuple[Tile, ...]:
    """Tiles of attention, the fastest by estimate first. `splits` 0: as many as are good; several cost a kernel that joins them."""
    if gpu.is_rdna:
        few = queries <= 16  # noqa: PLR2004 - the smallest block
        blocks = [(16 if few else 32, 16, 2 if few else 4, 1)]
    else:
        blocks = [
            (tile_queries, tile_keys, 4, 2)
            for tile_queries, tile_keys in itertools.product((16, 32, 64), (32, 64, 128))
            if tile_queries < 2 * max(16, queries)
            and tile_keys < 2 * max(32, keys)
            and tile_queries * tile_keys * head_dim <= _MOST_REGISTERS
            and 4 * tile_keys * head_dim * element_bytes <= gpu.shared_bytes
        ] or [(16, 32, 4, 1)]
    most = min(_MAX_KEY_SPLITS, keys // _MIN_KEYS) if keys >= _MANY_KEYS else 1
    found = []
    for (tile_queries, tile_keys, warps, stages), parts in itertools.product(
        blocks, (splits,) if splits else range(1, most + 1)
    ):
        programs = heads * -(-queries // tile_queries) * parts
        steps = -(-keys // (parts * tile_keys))
        # Clocks of a step: latency, loads, exponentials, products; and at last the kernel that joins the parts.
        clocks = 400 + tile_keys * head_dim * element_bytes // 32
        clocks += tile_queries * tile_keys // (4 * warps) + tile_queries * tile_keys * head_dim // 512
        cost = -(-programs // gpu.compute_units) * steps * clocks
        if parts > 1:
            cost += 3000 + parts * heads * queries * head_dim // (8 * gpu.compute_units)
        found.append((cost, parts, Tile(tile_queries, tile_keys, 0, parts, warps, stages)))
    return tuple(tile for *_, tile in sorted(found))


def choose(
    key: str, gpu: Gpu, candidates: Callable[[], Sequence[Tile]], run: Callable[[Tile], object], splits: int = 0
) -> Tile:
    """Return the measured tile of this shape, else the best by estimate; in a `tuning` block, measure it now."""
    known = known_tile(gpu.name, key)
    if known is not None and known.splits and splits in (0, known.splits):
        return known
    tiles, deadline = candidates(), _deadline.get()
    if time.monotonic() >= deadline or torch.cuda.is_current_stream_capturing():
        return tiles[0]
    return _measured(key, gpu, tiles[:_MOST_TUNED], run, deadline)


@lru_cache(maxsize=4096)
def known_tile(chip: str, key: str) -> Tile | None:
    """The tile that was measured for a shape: here, or for the table."""
    return _stored(chip).get(key) or _table().get(chip, {}).get(key)


_deadline: ContextVar[float] = ContextVar("deadline", default=0.0)


@contextmanager
def tuning(budget_s: float) -> Iterator[None]:
    """In this block, measure the tiles of shapes that are not known, for at most about that many seconds together."""
    token = _deadline.set(time.monotonic() + budget_s)
    try:
        yield
    finally:
        _deadline.reset(token)


def _measured(key: str, gpu: Gpu, tiles: Sequence[Tile], run: Callable[[Tile], object], deadline: float) -> Tile:
    """Time the tiles with weights that are not in a cache, keep the fastest in the cache folder, and return it."""
    times_ms: dict[Tile, float] = {}
    for tile in tiles:
        if time.monotonic() >= deadline:
            break
        try:
            run(tile)
            times_ms[tile] = float(
                triton.testing.do_bench(lambda t=tile: run(t), warmup=2, rep=10, return_mode="median")
            )
        except triton.TritonError:  # too large for this GPU
            times_ms[tile] = float("inf")
    if not times_ms:
        return tiles[0]
    fastest = min(times_ms, key=lambda tile: times_ms[tile])
    if len(times_ms) == len(tiles):
        stored = {**_stored(gpu.name), key: fastest}
        user_cache.write(_file(gpu.name), json.dumps(stored).encode())
    known_tile.cache_clear()
    return fastest


def _stored(chip: str) -> dict[str, Tile]:
    data = user_cache.read(_file(chip)) if chip else None
    return _tiles(json.loads(data)) if data else {}


def _file(chip: str) -> Path:
    kernels = Path(__file__).with_name("kernels.py").read_bytes()
    digest = hashlib.sha256(f"{chip} {triton.__version__} ".encode() + kernels).hexdigest()[:16]
    return user_cache.cache_folder("tiles") / f"{digest}.json"


@cache
def _table() -> Mapping[str, Mapping[str, Tile]]:
    text = Path(__file__).with_name("tiles.json").read_text(encoding="utf-8")
    return {chip: _tiles(found) for chip, found in json.loads(text)["tiles"].items()}


def _tiles(found: Mapping[str, Any]) -> dict[str, Tile]:
    return {key: Tile(*values) for key, values in found.items()}
