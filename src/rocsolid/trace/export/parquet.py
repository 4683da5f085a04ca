"""Writes the columns of a trace as Parquet files, one per table."""

from dataclasses import fields
from pathlib import Path

import numpy as np

from rocsolid.errors import MissingExtraError
from rocsolid.trace.columns import COLUMN_TYPES, TraceColumns

_TABLES = ("device", "calls", "ops", "annotations", "memory")


def write_parquet(folder: Path, columns: TraceColumns) -> list[Path]:
    """Write `device.parquet`, `calls.parquet` and so on. Ids are replaced by strings; times are integer nanoseconds."""
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as missing:
        raise MissingExtraError(feature="writing Parquet", extra="parquet") from missing
    strings = {
        "name": columns.names,
        "launch_config": columns.launch_configs,
        "thread": [columns.thread_names.get(thread, thread) for thread in columns.threads],
    }
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name in _TABLES:
        table = getattr(columns, name)
        arrays = {}
        for field in fields(table):
            values = getattr(table, field.name)
            if field.name in strings:
                dictionary = pa.array(list(strings[field.name]), pa.string())
                arrays[field.name] = pa.DictionaryArray.from_arrays(pa.array(values.astype(np.int32)), dictionary)
            else:
                arrays[field.name] = pa.array(values.astype(COLUMN_TYPES[field.name]))
        file = folder / f"{name}.parquet"
        parquet.write_table(pa.table(arrays), file, compression="zstd")
        written.append(file)
    return written
