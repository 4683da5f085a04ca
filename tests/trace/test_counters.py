"""GPU utilization from hardware counters in CSV, JSON and databases, and the messages for unknown values."""

import json
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.support import run_cli
from tests.trace.data import real
from tests.trace.test_rocprof import COMMON, DIRECT, ROCM7, TRACKED, made_json

pytest.importorskip("msgspec")
pytest.importorskip("numpy")

from rocsolid.api.trace import analyze_traces
from rocsolid.catalog.counters import COUNTER_RUNS, HARDWARE_COUNTERS
from rocsolid.catalog.device_peaks import DEVICE_PEAKS, find_peaks
from rocsolid.model.trace import HardwareUtilization, TraceFile
from rocsolid.trace.analysis.analyze import analyze_trace
from rocsolid.trace.read import read_trace

OLD = '"Correlation_Id","Dispatch_Id","Agent_Id","Queue_Id","Process_Id","Kernel_Name","Counter_Name","Counter_Value"\n'
NEW = OLD.replace('"Counter_Value"', '"Counter_Value","Start_Timestamp","End_Timestamp"')
CONVERTED = '"Guid",' + NEW.replace("Dispatch_Id", "DISPATCH_ID")
AGENTS = '"Node_Id","Agent_Type","Cu_Count","Max_Waves_Per_Cu","Name","Product_Name"\n0,"CPU",64,0,"cpu","A host"\n'
VALUES = {"FETCH_SIZE": 3000, "WRITE_SIZE": 1000, "OccupancyPercent": 25, "TCC_HIT_sum": 30, "TCC_MISS_sum": 10}


def read(file: Path) -> TraceFile:
    return analyze_trace(file, read_trace(file))


def write_counters(
    folder: Path, heading: str, values: Mapping[str, float], product: str = "AMD Instinct MI300X"
) -> Path:
    """Write two dispatches of a kernel, of 400 and 1200 ns; the second counts three times as much as the first."""
    guid = '"0a1b",' if heading.startswith('"Guid"') else ""
    lines = []
    for dispatch, factor in ((1, 0.5), (2, 1.5)):
        for name, value in values.items():
            same = value if "Percent" in name else value * factor
            times = f",1000,{1000 + int(800 * factor)}" if "Start_Timestamp" in heading else ""
            lines.append(f'{guid}{dispatch},{dispatch},4,1,9,"attn_fwd(a, b)","{name}",{same}{times}')
    (folder / "7_counter_collection.csv").write_text(heading + "\n".join(lines) + "\n")
    (folder / "7_agent_info.csv").write_text(AGENTS + f'4,"GPU",304,32,"gfx942","{product}"\n')
    return folder / "7_counter_collection.csv"


def hardware(trace: TraceFile) -> HardwareUtilization:
    assert trace.hardware
    return trace.hardware


@pytest.mark.parametrize("heading", [NEW, CONVERTED], ids=["ROCm 7", "converted"])
def test_utilization_with_times_in_the_same_rows(tmp_path: Path, heading: str) -> None:
    use = hardware(read(write_counters(tmp_path, heading, VALUES)))
    (kernel,) = use.kernels

    assert (use.chip, use.peak_gb_per_s, use.waves_per_unit, use.unknown) == ("AMD Instinct MI300X", 5324.8, 32, ())
    assert (kernel.dispatches, kernel.time_ns, kernel.occupancy, kernel.l2_hit_rate) == (2, 800.0, 0.25, 0.75)
    assert kernel.bytes == 4000 * 1024
    assert kernel.gb_per_s == pytest.approx(4000 * 1024 / 800)
    assert kernel.peak_fraction == pytest.approx(4000 * 1024 / 800 / 5324.8)


def test_without_times_in_the_rows_those_of_the_trace_are_used(tmp_path: Path) -> None:
    alone = hardware(read(write_counters(tmp_path, OLD, VALUES)))
    assert (alone.kernels[0].gb_per_s, alone.kernels[0].occupancy) == (None, 0.25)
    assert alone.unknown == ("bandwidth of 1 of 1 kernels unknown: no file contains the durations of these kernels",)
    (tmp_path / "7_kernel_trace.csv").write_text(ROCM7)
    with_trace = hardware(read(tmp_path / "7_counter_collection.csv"))
    assert with_trace.kernels[0].time_ns == 250.0
    assert with_trace.kernels[0].gb_per_s == pytest.approx(4000 * 1024 / 250)


def test_counter_files_are_merged_into_the_file_with_kernels(tmp_path: Path) -> None:
    (tmp_path / "trace_kernel_trace.csv").write_text(ROCM7)
    counters = write_counters(tmp_path, OLD, VALUES)
    with counters.open("a") as out:
        out.write('3,3,4,1,9,"attn_fwd(a, b)","FETCH_SIZE",no number\n')
    (file,) = analyze_traces([tmp_path / "trace_kernel_trace.csv", counters]).report.files

    assert file.counter_files == (str(counters),)
    assert hardware(file).kernels[0].gb_per_s == pytest.approx(4000 * 1024 / 250)
    assert file.damage == (f"{counters}: 1 broken rows skipped",)
    twice = analyze_traces([tmp_path / "trace_kernel_trace.csv", tmp_path / "trace_kernel_trace.csv", counters])
    assert len(twice.report.files) == 3  # it is unknown which trace the counters belong to


def test_counters_of_another_program_or_gpu_are_not_merged(tmp_path: Path) -> None:
    (tmp_path / "trace_kernel_trace.csv").write_text(ROCM7.replace("attn_fwd", "other"))
    counters = write_counters(tmp_path, OLD, VALUES)
    assert len(analyze_traces([tmp_path / "trace_kernel_trace.csv", counters]).report.files) == 2
    (tmp_path / "trace_kernel_trace.csv").write_text(ROCM7)
    (tmp_path / "trace_agent_info.csv").write_text(AGENTS + '4,"GPU",256,32,"gfx950","AMD Instinct MI350X"\n')
    assert len(analyze_traces([tmp_path / "trace_kernel_trace.csv", counters]).report.files) == 2


@pytest.mark.parametrize(
    ("product", "message"),
    [
        ("AMD Radeon Graphics", "peak bandwidth of AMD Radeon Graphics unknown: the catalogue has no documented value"),
        ("AMD Instinct MI325X", ""),
        ("AMD Instinct MI250X / MI250", ""),
        ("AMD Instinct MI999X", "peak bandwidth of AMD Instinct MI999X unknown"),
        ("AMD Instinct MI355X", "304 compute units, but an MI355X has 256; it may be a partition"),
        ("", "the file does not name the GPU"),
    ],
)
def test_an_unknown_peak_is_reported_and_not_guessed(tmp_path: Path, product: str, message: str) -> None:
    file = write_counters(tmp_path, NEW, VALUES, product)
    if not product:
        (tmp_path / "7_agent_info.csv").unlink()
    use = hardware(read(file))

    assert (use.peak_gb_per_s is None) == bool(message)
    assert (use.kernels[0].peak_fraction is None) == bool(message)
    assert message in " ".join(use.unknown)
    assert use.kernels[0].gb_per_s


def test_a_value_that_was_not_counted_is_a_question_mark(tmp_path: Path) -> None:
    nothing = run_cli("trace", str(write_counters(tmp_path, NEW, {"SQ_WAVES": 64})))
    assert "GPU utilization by kernel, from hardware counters\n  occupancy unknown" in nothing.out
    file = write_counters(tmp_path, NEW, {"FETCH_SIZE": 3000, "L2CacheHit": 80})
    use = hardware(read(file))
    ran = run_cli("trace", str(file))

    assert (use.kernels[0].bytes, use.kernels[0].occupancy, use.kernels[0].l2_hit_rate) == (None, None, 0.8)
    assert (
        "bandwidth unknown: it needs the counters FETCH_SIZE and WRITE_SIZE, which this run did not collect"
        in use.unknown
    )
    assert "occupancy unknown: it needs the counters OccupancyPercent" in ran.out.replace("\n  ", " ")
    assert "attn_fwd(a, b)           2  800 ns          ?   80.0 %      ?     ?        ?" in ran.out


def test_occupancy_from_wavefronts_per_compute_unit(tmp_path: Path) -> None:
    file = write_counters(tmp_path, NEW, {"MeanOccupancyPerCU": 8})
    assert hardware(read(file)).kernels[0].occupancy == pytest.approx(8 / 32)
    (tmp_path / "7_agent_info.csv").write_text(AGENTS + '4,"GPU",60,16,"gfx1100","AMD Radeon"\n')
    assert hardware(read(file)).kernels[0].occupancy == pytest.approx(8 / 16)  # the value in the file takes precedence


def with_counters() -> dict[str, Any]:
    """JSON with several values per counter, one for each L2 channel, which are summed."""
    made = made_json()
    (process,) = made["rocprofiler-sdk-tool"]
    process["agents"][1].update(product_name="AMD Instinct MI300X", cu_count=304, max_waves_per_cu=32)
    process["counters"] = [{"id": {"handle": n}, "name": name} for n, name in enumerate(VALUES)]
    parts = [
        {"counter_id": {"handle": n}, "value": value / (1 if "Percent" in name else 4)}
        for n, (name, value) in enumerate(VALUES.items())
        for _ in range(1 if "Percent" in name else 4)
    ]
    data = {"dispatch_info": {"kernel_id": 5, "dispatch_id": 1}, "start_timestamp": 1000, "end_timestamp": 1800}
    process["callback_records"] = {"counter_collection": [{"dispatch_data": data, "records": parts}]}
    return made


def test_counters_of_a_complete_and_a_truncated_json(tmp_path: Path) -> None:
    text = json.dumps(with_counters())
    (tmp_path / "r.json").write_text(text)
    (kernel,) = hardware(read(tmp_path / "r.json")).kernels
    assert (kernel.kernel, kernel.dispatches, kernel.time_ns, kernel.occupancy) == ("attn_fwd", 1, 800.0, 0.25)
    assert (kernel.l2_hit_rate, kernel.bytes) == (0.75, 4000 * 1024)
    assert kernel.peak_fraction == pytest.approx(4000 * 1024 / 800 / 5324.8)

    (tmp_path / "cut.json").write_text(text[:-8])
    cut = read(tmp_path / "cut.json")
    assert cut.damage
    assert cut.devices[0].kernel_count == 4


@pytest.mark.parametrize("layout", [DIRECT, TRACKED], ids=["times in the row", "times in other tables"])
def test_counters_of_a_database(tmp_path: Path, layout: str) -> None:
    values = "".join(
        f"""insert into "rocpd_info_pmc_u1" values ({n}, '{name}');
        insert into "rocpd_pmc_event_u1" values ({10 * n}, 1, {n}, {value}), ({10 * n + 1}, 2, {n}, {value});"""  # noqa: S608
        for n, (name, value) in enumerate(VALUES.items(), 2)
    )
    with sqlite3.connect(tmp_path / "r.db") as base:
        base.executescript(COMMON.replace("'A chip'", "'AMD Instinct MI350X'") + layout + values)
    base.close()
    use = hardware(read(tmp_path / "r.db"))
    (kernel,) = use.kernels

    assert (use.peak_gb_per_s, kernel.dispatches, kernel.time_ns) == (8000.0, 2, 250.0)  # 400 and 100 ns
    assert (kernel.occupancy, kernel.l2_hit_rate) == (0.25, 0.75)
    assert kernel.peak_fraction == pytest.approx(4000 * 1024 / 250 / 8000)


def test_page_and_saved_report_show_the_table(tmp_path: Path) -> None:
    file = write_counters(tmp_path, NEW, VALUES)
    page = run_cli("trace", str(file), "--output", "html").out
    run_cli("trace", str(file), "--output", "json", "--out", str(tmp_path / "saved.json"))
    again = run_cli("report", str(tmp_path / "saved.json")).out

    assert "GPU utilization by kernel" in page
    assert "peak of AMD Instinct MI300X: 5,324.8 GB/s memory bandwidth, 32 wavefronts per compute unit" in page
    assert "96.2 %" in page
    assert "96.2 %" in again


def test_real_counters_without_the_name_of_the_gpu() -> None:
    use = hardware(read(real("counter_collection.csv")))

    assert use.chip == ""
    assert len(use.kernels) == 3
    assert any("the file does not name the GPU" in text for text in use.unknown)


def test_every_card_and_counter_has_a_source() -> None:
    assert len({chip.name for chip in DEVICE_PEAKS}) == len(DEVICE_PEAKS)
    instinct = [chip for chip in DEVICE_PEAKS if chip.name.startswith("MI")]
    assert all(chip.evidence and find_peaks(f"AMD Instinct {chip.name}") == chip for chip in instinct)
    assert all(meter.evidence for meter in HARDWARE_COUNTERS.values())
    assert all(
        counter in HARDWARE_COUNTERS
        for alternatives in COUNTER_RUNS
        for counter_set in alternatives
        for counter in counter_set
    )
    assert find_peaks("NVIDIA A30") is None
