"""rocprofv3 files: JSON, CSV of three releases, and databases in two layouts."""

import gzip
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from tests.trace.data import real

pytest.importorskip("msgspec")
pytest.importorskip("numpy")

from rocsolid.errors import InputError
from rocsolid.model.trace import TraceFile
from rocsolid.trace.analysis.analyze import analyze_trace
from rocsolid.trace.read import read_trace


def read(file: Path) -> TraceFile:
    return analyze_trace(file, read_trace(file))


def test_a_real_json_has_exact_totals() -> None:
    file = real("mi350x_results.json.gz")
    (process,) = json.loads(gzip.decompress(file.read_bytes()))["rocprofiler-sdk-tool"]
    work = sorted((d["start_timestamp"], d["end_timestamp"]) for d in process["buffer_records"]["kernel_dispatch"])
    busy, reached = 0, work[0][0]
    for start, end in work:
        busy += max(0, end - max(start, reached))
        reached = max(reached, end)
    trace = read(file)
    (device,) = trace.devices

    assert (device.kernel_count, device.kernel_time_ns) == (len(work), sum(end - start for start, end in work))
    assert (device.busy_ns, device.span_ns, device.idle_ns) == (busy, reached - work[0][0], reached - work[0][0] - busy)
    assert len(device.kernels) == 80
    assert device.kernels[0].total_ns == 4_158_756_678
    assert (device.model, trace.skipped_events, trace.platform) == ("AMD Instinct MI350X", 0, "rocm")


def made_json() -> dict[str, Any]:
    def record(start: int, end: int, correlation: int, **more: Any) -> dict[str, Any]:
        times = {"start_timestamp": start, "end_timestamp": end}
        return {"size": 1, "kind": 1, "operation": 0, "correlation_id": {"internal": correlation}, **times, **more}

    info = {
        "agent_id": {"handle": 77},
        "queue_id": {"handle": 1},
        "kernel_id": 5,
        "workgroup_size": {"x": 64, "y": 1, "z": 1},
    }
    info["grid_size"] = {"x": 6400, "y": 1, "z": 1}
    dispatches = [record(1000 + 100 * n, 1050 + 100 * n, n, dispatch_info=info) for n in range(4)]
    copy = record(2000, 2100, 9, kind=2, bytes=4096, dst_agent_id={"handle": 77}, src_agent_id={"handle": 70})
    calls = [record(900 + 100 * n, 910 + 100 * n, n, kind=3, operation=int(n == 0), thread_id=1) for n in range(4)]
    process = {
        "agents": [
            {"id": {"handle": 70}, "type": 1, "node_id": 0},
            {"id": {"handle": 77}, "type": 2, "node_id": 3, "product_name": "A chip"},
        ],
        "kernel_symbols": [{"kernel_id": 5, "formatted_kernel_name": "attn_fwd", "arch_vgpr_count": 32}],
        "strings": {
            "buffer_records": [
                {"kind": "NONE", "operations": []},
                {"kind": "KERNEL_DISPATCH", "operations": ["x"]},
                {"kind": "MEMORY_COPY", "operations": ["MEMORY_COPY_HOST_TO_DEVICE"]},
                {"kind": "HIP_RUNTIME_API", "operations": ["hipLaunchKernel", "hipGraphLaunch"]},
            ]
        },
        "buffer_records": {"kernel_dispatch": dispatches, "memory_copy": [copy], "hip_api": calls},
    }
    return {"rocprofiler-sdk-tool": [process]}


def test_json_copies_calls_and_graphs(tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text(json.dumps(made_json()))
    (device,) = read(tmp_path / "r.json").devices

    assert (device.device, device.model) == ("3", "A chip")
    assert (device.copy_count, device.copy_bytes, device.copies[0].direction) == (1, 4096, "HtoD")
    assert (device.graph_launches, device.graph_kernel_count, device.graph_kernel_time_ns) == (1, 1, 50)
    assert device.kernels[0].launch_config == "grid 100×1×1, block 64×1×1, 32 VGPRs"


def test_complete_records_of_a_damaged_json_are_read(tmp_path: Path) -> None:
    text = json.dumps(made_json())
    at = text.index('"start_timestamp": 1200')
    (tmp_path / "cut.json").write_text(text[:at])
    cut = read(tmp_path / "cut.json")
    (tmp_path / "nan.json").write_text(text.replace('"start_timestamp": 1200', '"start_timestamp": nan', 1))
    damaged = read(tmp_path / "nan.json")

    assert (cut.devices[0].kernel_count, cut.skipped_events) == (2, 1)
    assert (damaged.devices[0].kernel_count, damaged.skipped_events) == (3, 1)
    assert cut.damage == damaged.damage == ("the JSON is broken or truncated; the complete records in it were read",)


ROCM7 = (
    '"Kind","Agent_Id","Queue_Id","Stream_Id","Thread_Id","Dispatch_Id","Kernel_Id","Kernel_Name","Correlation_Id",'
    '"Start_Timestamp","End_Timestamp","LDS_Block_Size","Scratch_Size","VGPR_Count","Accum_VGPR_Count","SGPR_Count",'
    '"Workgroup_Size_X","Workgroup_Size_Y","Workgroup_Size_Z","Grid_Size_X","Grid_Size_Y","Grid_Size_Z"\n'
    '"KERNEL_DISPATCH","Agent 4",1,2,9,1,16,"attn_fwd(a, b)",1,1000,1400,512,0,32,4,16,64,1,1,640,1,1\n'
    '"KERNEL_DISPATCH","Agent 4",1,2,9,2,16,"attn_fwd(a, b)",2,1500,1600,512,0,32,4,16,64,1,1,640,1,1\n'
)
ROCM6 = (
    '"Kind","Agent_Id","Queue_Id","Thread_Id","Dispatch_Id","Kernel_Id","Kernel_Name","Correlation_Id","Start_Timestamp",'
    '"End_Timestamp","Private_Segment_Size","Group_Segment_Size","Workgroup_Size_X","Workgroup_Size_Y","Workgroup_Size_Z",'
    '"Grid_Size_X","Grid_Size_Y","Grid_Size_Z"\n'
    '"KERNEL_DISPATCH",4,1,9,1,16,"attn_fwd(a, b)",1,1000,1400,0,512,64,1,1,640,1,1\n'
    '"KERNEL_DISPATCH",4,1,9,2,16,"attn_fwd(a, b)",2,1500,1600,0,512,64,1,1,640,1,1\n'
)
CONVERTED = "\n".join(
    ('"Guid",' if n == 0 else '"0a1b",') + (line.replace("VGPR_Count", "Vgpr_Count").replace("LDS", "Lds"))
    for n, line in enumerate(ROCM7.splitlines())
)


@pytest.mark.parametrize("text", [ROCM7, ROCM6, CONVERTED], ids=["ROCm 7", "ROCm 6", "converted"])
def test_csv_of_three_releases(tmp_path: Path, text: str) -> None:
    (tmp_path / "kernel_trace.csv").write_text(text)
    (device,) = read(tmp_path / "kernel_trace.csv").devices

    assert (device.device, device.kernel_count, device.kernel_time_ns, device.idle_ns) == ("4", 2, 500, 100)
    assert "grid 10×1×1, block 64×1×1" in device.kernels[0].launch_config
    assert "512 B LDS" in device.kernels[0].launch_config


def test_csv_files_of_one_run_are_read_together(tmp_path: Path) -> None:
    (tmp_path / "908_kernel_trace.csv").write_text(ROCM7)
    calls = '"Domain","Function","Process_Id","Thread_Id","Correlation_Id","Start_Timestamp","End_Timestamp"\n'
    calls += '"HIP_RUNTIME_API","hipGraphLaunch",9,9,1,900,910\n"HIP_RUNTIME_API","hipLaunchKernel",9,9,2,1450,1460\n'
    (tmp_path / "908_hip_api_trace.csv").write_text(calls)
    (tmp_path / "909_hip_api_trace.csv").write_text(calls)
    copies = '"Kind","Direction","Source_Agent_Id","Destination_Agent_Id","Correlation_Id","Start_Timestamp","End_Timestamp"\n'
    (tmp_path / "908_memory_copy_trace.csv").write_text(
        copies + '"MEMORY_COPY","MEMORY_COPY_DEVICE_TO_HOST",4,0,0,1700,1800\n'
    )
    (device,) = read(tmp_path / "908_kernel_trace.csv").devices

    assert (device.graph_launches, device.graph_kernel_count, device.copy_count) == (1, 1, 1)
    assert (device.copies[0].direction, device.copies[0].unknown_size_count) == ("DtoH", 1)
    assert device.gaps[0].cause.value in ("late-launch", "unknown")


def test_incomplete_csv_rows_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "kernel_trace.csv").write_text(ROCM6 + '"KERNEL_DISPATCH",4,1\n"KERNEL_DISPATCH",4')
    trace = read(tmp_path / "kernel_trace.csv")

    assert (trace.events, trace.skipped_events, trace.devices[0].kernel_count) == (4, 2, 2)


def test_real_counters_by_kernel() -> None:
    trace = read(real("counter_collection.csv"))

    assert {(row.counter, row.mean) for row in trace.counters} == {("SQ_WAVES", 16384.0)}
    assert sum(row.count for row in trace.counters) == 7


DIRECT = """
create table "rocpd_kernel_dispatch_u1" (id integer primary key, nid, pid, tid, agent_id, kernel_id, dispatch_id, queue_id,
  stream_id, start, end, private_segment_size, group_segment_size, workgroup_size_x, workgroup_size_y, workgroup_size_z,
  grid_size_x, grid_size_y, grid_size_z, region_name_id, event_id);
create table "rocpd_memory_copy_u1" (id integer primary key, nid, pid, tid, start, end, name_id, dst_agent_id, dst_address,
  src_agent_id, src_address, size, queue_id, stream_id, region_name_id, event_id);
create table "rocpd_region_u1" (id integer primary key, nid, pid, tid, start, end, name_id, event_id);
insert into "rocpd_kernel_dispatch_u1" values (1,1,1,9,2,5,1,1,3,1000,1400,0,512,64,1,1,640,1,1,null,1);
insert into "rocpd_kernel_dispatch_u1" values (2,1,1,9,2,5,2,1,3,1500,1600,0,512,64,1,1,640,1,1,null,2);
insert into "rocpd_memory_copy_u1" values (1,1,1,9,1700,1800,1,1,0,2,0,4096,1,3,null,null);
insert into "rocpd_region_u1" values (1,1,1,9,900,910,2,1);
"""
TRACKED = """
create table "rocpd_timestamp_u1" (id integer primary key, value);
create table "rocpd_track_u1" (id integer primary key, nid, pid, tid, agent_id, queue_id, stream_id, name_id);
create table "rocpd_kernel_dispatch_u1" (id integer primary key, track_id, kernel_id, dispatch_id, start_id, end_id,
  private_segment_size, group_segment_size, workgroup_size_x, workgroup_size_y, workgroup_size_z, grid_size_x, grid_size_y,
  grid_size_z, region_name_id, event_id);
create table "rocpd_memory_copy_u1" (id integer primary key, track_id, start_id, end_id, name_id, dst_agent_id, dst_address,
  src_agent_id, src_address, size, region_name_id, event_id);
create table "rocpd_region_u1" (id integer primary key, track_id, name_id, start_id, end_id, event_id);
insert into "rocpd_timestamp_u1" values (1,1000),(2,1400),(3,1500),(4,1600),(5,1700),(6,1800),(7,900),(8,910);
insert into "rocpd_track_u1" values (1,1,1,9,2,1,3,null);
insert into "rocpd_kernel_dispatch_u1" values (1,1,5,1,1,2,0,512,64,1,1,640,1,1,null,1);
insert into "rocpd_kernel_dispatch_u1" values (2,1,5,2,3,4,0,512,64,1,1,640,1,1,null,2);
insert into "rocpd_memory_copy_u1" values (1,1,5,6,1,1,0,2,0,4096,null,null);
insert into "rocpd_region_u1" values (1,1,2,7,8,1);
"""
COMMON = """
create table "rocpd_string_u1" (id integer primary key, string);
create table "rocpd_info_agent_u1" (id integer primary key, type, absolute_index, name, product_name);
create table "rocpd_info_kernel_symbol_u1" (id integer primary key, kernel_name, display_name, sgpr_count, arch_vgpr_count);
create table "rocpd_event_u1" (id integer primary key, category_id, stack_id, parent_stack_id, correlation_id);
create table "rocpd_info_pmc_u1" (id integer primary key, symbol);
create table "rocpd_pmc_event_u1" (id integer primary key, event_id, pmc_id, value);
insert into "rocpd_string_u1" values (1,'MEMORY_COPY_DEVICE_TO_HOST'),(2,'hipGraphLaunch'),(3,'HIP_RUNTIME_API_EXT');
insert into "rocpd_info_agent_u1" values (1,'CPU',0,'cpu','A host'),(2,'GPU',4,'gfx950','A chip');
insert into "rocpd_info_kernel_symbol_u1" values (5,'_Z8attn_fwd','attn_fwd(a, b)',16,32);
insert into "rocpd_event_u1" values (1,3,41,0,0),(2,3,42,0,0);
insert into "rocpd_info_pmc_u1" values (1,'SQ_WAVES');
insert into "rocpd_pmc_event_u1" values (1,1,1,100.0),(2,2,1,300.0);
"""


@pytest.mark.parametrize("layout", [DIRECT, TRACKED], ids=["times in the row", "times in other tables"])
def test_databases_are_read_without_rocm(tmp_path: Path, layout: str) -> None:
    with sqlite3.connect(tmp_path / "r.db") as base:
        base.executescript(COMMON + layout)
    base.close()
    trace = read(tmp_path / "r.db")
    (device,) = trace.devices

    assert (device.device, device.model, trace.producer) == ("4", "A chip", "rocpd")
    assert (device.kernel_count, device.kernel_time_ns, device.busy_ns, device.span_ns) == (2, 500, 600, 800)
    assert (device.copy_count, device.copy_bytes, device.copies[0].direction) == (1, 4096, "DtoH")
    assert (device.graph_launches, device.graph_kernel_count, device.graph_kernel_time_ns) == (1, 1, 400)
    assert [(row.counter, row.count, row.mean) for row in trace.counters] == [("SQ_WAVES", 2, 200.0)]


def test_another_or_broken_database_is_an_input_error(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "x.db") as base:
        base.execute("create table t (a)")
    base.close()
    with pytest.raises(InputError, match="rocprofv3 did not write it"):
        read_trace(tmp_path / "x.db")
    (tmp_path / "y.db").write_bytes(b"SQLite format 3\0" + b"garbage" * 1000)
    with pytest.raises(InputError, match="this is not a rocpd database"):
        read_trace(tmp_path / "y.db")
