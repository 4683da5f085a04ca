"""Reads rocpd databases, the default output of rocprofv3 since ROCm 7. They are SQLite, so ROCm is not needed."""

import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from rocsolid.errors import InputError
from rocsolid.measure.database import open_database
from rocsolid.trace.columns import EventKind, TraceColumns
from rocsolid.trace.readers.rocprof_columns import RocprofColumnBuilder, launch_config_text, parse_integer

_NAME: Final = re.compile(r"\w+")  # it becomes part of a query
_DISPATCH_TABLE: Final = "rocpd_kernel_dispatch"


def read_rocpd(file: Path) -> TraceColumns:
    """Read all processes of a database. Each process has its own tables; their names end with a suffix of the process."""
    builder = RocprofColumnBuilder("rocpd")
    with open_database(file, "a rocpd database") as database:
        suffixes = _suffixes(database)
        if not suffixes:
            msg = f"{file} is an SQLite database, but rocprofv3 did not write it"
            raise InputError(msg)
        try:
            for suffix in suffixes:
                _Process(database, suffix, builder).read()
        except (sqlite3.DatabaseError, ValueError, TypeError, OverflowError) as broken:
            if not builder.events:
                msg = f"{file} cannot be read as a rocpd database: {broken}"
                raise InputError(msg) from broken
            builder.damage.append(f"the database is broken: {broken}")
    return builder.columns()


def _suffixes(database: sqlite3.Connection) -> list[str]:
    names = [name for name in _tables(database) if name.startswith(_DISPATCH_TABLE)]
    return [name.removeprefix(_DISPATCH_TABLE) for name in names if _NAME.fullmatch(name)]


def _tables(database: sqlite3.Connection) -> list[str]:
    return [row[0] for row in database.execute("select name from sqlite_master where type = 'table'")]


class _Process:
    """Reads the tables of one process."""

    def __init__(self, database: sqlite3.Connection, suffix: str, builder: RocprofColumnBuilder) -> None:
        self.database = database
        self.suffix = suffix
        self.builder = builder
        self.agents: dict[int, tuple[int, str]] = {}  # by id: device number, and "GPU" or "CPU"

    def read(self) -> None:
        for agent, index, kind, model in self.rows(
            f"select id, absolute_index, type, coalesce(nullif(product_name, ''), name) from {self.table('info_agent')}"
        ):
            device = parse_integer(index if index is not None else agent)
            self.agents[parse_integer(agent)] = (device, str(kind or ""))
            self.builder.add_agent(device, str(model or ""), gpu=kind == "GPU")
        self._add_kernels()
        self._add_copies()
        self._add_calls()
        self._add_counters()

    def table(self, name: str) -> str:
        return f'"rocpd_{name}{self.suffix}"'

    def has(self, name: str, column: str = "") -> bool:
        if f"rocpd_{name}{self.suffix}" not in _tables(self.database):
            return False  # also not a view, which may be endless
        columns = [row[1] for row in self.database.execute(f"pragma table_info({self.table(name)})")]
        return column in columns if column else bool(columns)

    def rows(self, query: str) -> Iterator[tuple[Any, ...]]:
        yield from self.database.execute(query)

    def _time_columns(self, name: str) -> tuple[str, str]:
        """Return the SQL columns for start, end, agent, stream, queue and thread, and the joins that they need.

        Depending on the release, they are in the table `name` itself, or in `timestamp` and `track`.
        """
        if self.has(name, "start"):
            return "t.start, t.end, t.agent_id, t.stream_id, t.queue_id, t.tid", ""
        joins = (
            f" join {self.table('timestamp')} b on b.id = t.start_id join {self.table('timestamp')} e on e.id = t.end_id"
            f" left join {self.table('track')} k on k.id = t.track_id"
        )
        return "b.value, e.value, k.agent_id, k.stream_id, k.queue_id, k.tid", joins

    def _device(self, agent: object) -> int:
        number = parse_integer(agent)
        return self.agents.get(number, (number, ""))[0]

    def _add_kernels(self) -> None:
        columns, joins = self._time_columns("kernel_dispatch")
        query = (
            f"select {columns}, coalesce(s.display_name, s.kernel_name), v.stack_id, t.grid_size_x, t.grid_size_y,"
            f" t.grid_size_z, t.workgroup_size_x, t.workgroup_size_y, t.workgroup_size_z, s.arch_vgpr_count, s.sgpr_count,"
            f" t.group_segment_size, t.private_segment_size from {self.table('kernel_dispatch')} t{joins}"
            f" left join {self.table('info_kernel_symbol')} s on s.id = t.kernel_id"
            f" left join {self.table('event')} v on v.id = t.event_id"
        )
        for start, end, agent, stream, queue, _thread, name, correlation, *sizes in self.rows(query):
            self.builder.add_device_event(
                EventKind.KERNEL,
                str(name),
                start,
                end,
                device=self._device(agent),
                stream=stream if stream is not None else queue,
                correlation=correlation,
                launch_config=launch_config_text(
                    tuple(sizes[:3]),
                    tuple(sizes[3:6]),
                    vgprs=sizes[6],
                    sgprs=sizes[7],
                    lds_bytes=sizes[8],
                    scratch_bytes=sizes[9],
                ),
            )

    def _add_copies(self) -> None:
        if not self.has("memory_copy"):
            return
        columns, joins = self._time_columns("memory_copy")
        columns = columns.replace("t.agent_id", "t.dst_agent_id").replace("k.agent_id", "t.dst_agent_id")
        query = (
            f"select {columns}, t.src_agent_id, n.string, t.size, v.stack_id from {self.table('memory_copy')} t{joins}"
            f" left join {self.table('string')} n on n.id = t.name_id"
            f" left join {self.table('event')} v on v.id = t.event_id"
        )
        for start, end, target, stream, queue, _thread, source, name, size, correlation in self.rows(query):
            on_gpu = [
                a for a in (target, source) if a is not None and self.agents.get(parse_integer(a), (0, ""))[1] == "GPU"
            ]
            self.builder.add_device_event(
                EventKind.COPY,
                str(name or "MEMORY_COPY"),
                start,
                end,
                device=self._device(on_gpu[0] if on_gpu else target),
                stream=stream if stream is not None else queue,
                correlation=correlation,
                bytes=size,
            )

    def _add_calls(self) -> None:
        if not self.has("region"):
            return
        columns, joins = self._time_columns("region")
        for column in ("agent_id", "stream_id", "queue_id"):
            columns = columns.replace(f"t.{column}", "null")
        query = (
            f"select {columns}, n.string, c.string, v.stack_id from {self.table('region')} t{joins}"
            f" left join {self.table('string')} n on n.id = t.name_id"
            f" left join {self.table('event')} v on v.id = t.event_id"
            f" left join {self.table('string')} c on c.id = v.category_id"
        )
        for start, end, _agent, _stream, _queue, thread, name, category, correlation in self.rows(query):
            table = "annotations" if "MARKER" in str(category).upper() else "calls"
            self.builder.add_host_event(table, str(name), start, end, thread=str(thread), correlation=correlation)

    def _add_counters(self) -> None:
        if not (self.has("pmc_event") and self.has("info_pmc")):
            return
        columns, joins = self._time_columns("kernel_dispatch")
        times = columns.split(", ")
        query = (
            f"select coalesce(s.display_name, s.kernel_name), i.symbol, p.value, t.id, {times[0]}, {times[1]}"
            f" from {self.table('pmc_event')} p"
            f" join {self.table('info_pmc')} i on i.id = p.pmc_id"
            f" join {self.table('kernel_dispatch')} t on t.event_id = p.event_id{joins}"
            f" left join {self.table('info_kernel_symbol')} s on s.id = t.kernel_id"
        )
        for kernel, counter, value, dispatch, start, end in self.rows(query):
            first, last = parse_integer(start), parse_integer(end)
            self.builder.add_counter(
                str(kernel),
                str(counter),
                value,
                dispatch=(self.suffix, dispatch),
                duration_ns=last - first if 0 <= first < last else -1,
            )
