"""rocprofv3's database, its default since ROCm 7: plain SQLite, read without ROCm."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from rocsolid.errors import InputError
from rocsolid.trace.columns import Columns, Kind
from rocsolid.trace.row_columns import Assembler, number, shape_of

MAGIC: Final = b"SQLite format 3\0"
_DISPATCH: Final = "rocpd_kernel_dispatch"


def read_rocpd(file: Path) -> Columns:
    """All processes of a database; each has tables of its own, told apart by what follows their names."""
    found = Assembler("rocpd")
    try:
        base = sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True)
        try:
            suffixes = _suffixes(base)
            if not suffixes:
                msg = f"{file} is an SQLite database, but none of rocprofv3's"
                raise InputError(msg)
            for suffix in suffixes:
                _Process(base, suffix, found).take()
        finally:
            base.close()
    except sqlite3.DatabaseError as broken:
        if not found.events:
            msg = f"{file} cannot be read as a database: {broken}"
            raise InputError(msg) from broken
        found.damage.append(f"the database is broken: {broken}")
    return found.columns()


def _suffixes(base: sqlite3.Connection) -> list[str]:
    names = [row[0] for row in base.execute("select name from sqlite_master where type = 'table'")]
    return [name.removeprefix(_DISPATCH) for name in names if name.startswith(_DISPATCH)]


class _Process:
    """The tables of one process."""

    def __init__(self, base: sqlite3.Connection, suffix: str, found: Assembler) -> None:
        self.base = base
        self.suffix = suffix
        self.found = found
        self.agents: dict[int, tuple[int, str]] = {}

    def take(self) -> None:
        for agent, index, kind, model in self.rows(
            f"select id, absolute_index, type, coalesce(nullif(product_name, ''), name) from {self.table('info_agent')}"
        ):
            self.agents[agent] = (index if index is not None else agent, kind or "")
            self.found.device(self.agents[agent][0], model or "", gpu=kind == "GPU")
        self._kernels()
        self._copies()
        self._calls()
        self._counters()

    def table(self, name: str) -> str:
        return f'"rocpd_{name}{self.suffix}"'

    def has(self, name: str, column: str = "") -> bool:
        columns = [row[1] for row in self.base.execute(f"pragma table_info({self.table(name)})")]
        return column in columns if column else bool(columns)

    def rows(self, query: str) -> Iterator[tuple[Any, ...]]:
        yield from self.base.execute(query)

    def _placed(self, name: str) -> tuple[str, str]:
        """Where times and places stand: in the row itself, or in tables of timestamps and tracks that it points to."""
        if self.has(name, "start"):
            return "t.start, t.end, t.agent_id, t.stream_id, t.queue_id, t.tid", ""
        joins = (
            f" join {self.table('timestamp')} b on b.id = t.start_id join {self.table('timestamp')} e on e.id = t.end_id"
            f" left join {self.table('track')} k on k.id = t.track_id"
        )
        return "b.value, e.value, k.agent_id, k.stream_id, k.queue_id, k.tid", joins

    def _device(self, agent: object) -> int:
        return self.agents.get(int(str(agent)), (int(str(agent)), ""))[0] if agent is not None else -1

    def _kernels(self) -> None:
        places, joins = self._placed("kernel_dispatch")
        query = (
            f"select {places}, coalesce(s.display_name, s.kernel_name), v.stack_id, t.grid_size_x, t.grid_size_y,"
            f" t.grid_size_z, t.workgroup_size_x, t.workgroup_size_y, t.workgroup_size_z, s.arch_vgpr_count, s.sgpr_count,"
            f" t.group_segment_size, t.private_segment_size from {self.table('kernel_dispatch')} t{joins}"
            f" left join {self.table('info_kernel_symbol')} s on s.id = t.kernel_id"
            f" left join {self.table('event')} v on v.id = t.event_id"
        )
        for start, end, agent, stream, queue, _thread, name, correlation, *sizes in self.rows(query):
            self.found.work(
                Kind.KERNEL,
                str(name),
                start,
                end,
                device=self._device(agent),
                stream=stream if stream is not None else queue,
                correlation=correlation,
                shape=shape_of(
                    tuple(sizes[:3]),
                    tuple(sizes[3:6]),
                    VGPRs=sizes[6],
                    SGPRs=sizes[7],
                    B_LDS=sizes[8],
                    B_scratch=sizes[9],
                ),
            )

    def _copies(self) -> None:
        if not self.has("memory_copy"):
            return
        places, joins = self._placed("memory_copy")
        places = places.replace("t.agent_id", "t.dst_agent_id").replace("k.agent_id", "t.dst_agent_id")
        query = (
            f"select {places}, t.src_agent_id, n.string, t.size, v.stack_id from {self.table('memory_copy')} t{joins}"
            f" left join {self.table('string')} n on n.id = t.name_id"
            f" left join {self.table('event')} v on v.id = t.event_id"
        )
        for start, end, target, stream, queue, _thread, source, name, size, correlation in self.rows(query):
            on_gpu = [
                a for a in (target, source) if a is not None and self.agents.get(int(str(a)), (0, ""))[1] == "GPU"
            ]
            self.found.work(
                Kind.COPY,
                str(name or "MEMORY_COPY"),
                start,
                end,
                device=self._device(on_gpu[0] if on_gpu else target),
                stream=stream if stream is not None else queue,
                correlation=correlation,
                bytes=size,
            )

    def _calls(self) -> None:
        if not self.has("region"):
            return
        places, joins = self._placed("region")
        for column in ("agent_id", "stream_id", "queue_id"):
            places = places.replace(f"t.{column}", "null")
        query = (
            f"select {places}, n.string, c.string, v.stack_id from {self.table('region')} t{joins}"
            f" left join {self.table('string')} n on n.id = t.name_id"
            f" left join {self.table('event')} v on v.id = t.event_id"
            f" left join {self.table('string')} c on c.id = v.category_id"
        )
        for start, end, _agent, _stream, _queue, thread, name, category, correlation in self.rows(query):
            table = "notes" if "MARKER" in str(category).upper() else "calls"
            self.found.call(table, str(name), start, end, thread=str(thread), correlation=correlation)

    def _counters(self) -> None:
        if not (self.has("pmc_event") and self.has("info_pmc")):
            return
        places, joins = self._placed("kernel_dispatch")
        times = places.split(", ")
        query = (
            f"select coalesce(s.display_name, s.kernel_name), i.symbol, p.value, t.id, {times[0]}, {times[1]}"
            f" from {self.table('pmc_event')} p"
            f" join {self.table('info_pmc')} i on i.id = p.pmc_id"
            f" join {self.table('kernel_dispatch')} t on t.event_id = p.event_id{joins}"
            f" left join {self.table('info_kernel_symbol')} s on s.id = t.kernel_id"
        )
        for kernel, counter, value, dispatch, start, end in self.rows(query):
            first, last = number(start), number(end)
            self.found.count(
                str(kernel),
                str(counter),
                value,
                dispatch=(self.suffix, dispatch),
                length=last - first if 0 <= first < last else -1,
            )
