"""The topology files that the kernel driver would show ROCr on a machine with one MI300X."""

from collections.abc import Mapping
from pathlib import Path

_LINK = {"type": 2, "version_major": 0, "version_minor": 0, "weight": 20, "max_bandwidth": 64000, "flags": 3}
_HOST = {
    "cpu_cores_count": 2,
    "simd_count": 0,
    "mem_banks_count": 1,
    "caches_count": 0,
    "io_links_count": 1,
    "max_engine_clk_ccompute": 3000,
}
_CHIP = {
    "cpu_cores_count": 0,
    "simd_count": 1216,
    "mem_banks_count": 1,
    "caches_count": 1,
    "io_links_count": 1,
    "simd_id_base": 2147487744,
    "max_waves_per_simd": 8,
    "lds_size_in_kb": 64,
    "num_gws": 64,
    "wave_front_size": 64,
    "array_count": 32,
    "simd_arrays_per_engine": 1,
    "cu_per_simd_array": 10,
    "simd_per_cu": 4,
    "max_slots_scratch_cu": 32,
    "gfx_target_version": 90402,
    "vendor_id": 4098,
    "device_id": 29857,
    "location_id": 768,
    "drm_render_minor": 128,
    "num_sdma_engines": 0,
    "num_sdma_xgmi_engines": 0,
    "num_sdma_queues_per_engine": 8,
    "num_cp_queues": 24,
    "max_engine_clk_fcompute": 2100,
    "local_mem_size": 0,
    "fw_version": 166,
    "capability": 2892210816,
    "debug_prop": 1511,
    "sdma_fw_version": 24,
    "unique_id": 1234567890123,
    "num_xcc": 8,
    "max_engine_clk_ccompute": 3000,
}
_CACHE: dict[str, int | str] = {
    "processor_id_low": 2147487744,
    "level": 2,
    "size": 4096,
    "cache_line_size": 128,
    "cache_lines_per_tag": 1,
    "association": 16,
    "type": 9,
    "sibling_map": "1,1,1,1",
}


def write_topology(folder: Path) -> None:
    """Write the files for a CPU and a gfx942 with 192 GB."""
    _write(folder / "system_properties", {"platform_oem": 0, "platform_id": 0, "platform_rev": 0})
    _text(folder / "generation_id", "1")
    for number, (node, identity, heap, size) in enumerate(
        ((_HOST, 0, 0, 25_000_000_000), (_CHIP, 2, 1, 206_141_652_992))
    ):
        node_folder = folder / "nodes" / str(number)
        _text(node_folder / "gpu_id", str(identity))
        _text(node_folder / "name", "ip discovery" if identity else "")
        _write(node_folder / "properties", node)
        bank = {"heap_type": heap, "size_in_bytes": size, "flags": 0, "width": 8192, "mem_clk_max": 1300}
        _write(node_folder / "mem_banks/0/properties", bank)
        _write(node_folder / "io_links/0/properties", {**_LINK, "node_from": number, "node_to": 1 - number})
    _write(folder / "nodes/1/caches/0/properties", _CACHE)


def _write(file: Path, properties: Mapping[str, int | str]) -> None:
    _text(file, "".join(f"{name} {value}\n" for name, value in properties.items()))


def _text(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
