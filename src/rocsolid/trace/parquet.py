"""What was read, for other tools: one Parquet file for each table."""

from dataclasses import fields
from pathlib import Path

import numpy as np

from rocsolid.errors import MissingExtraError
from rocsolid.trace.columns import TYPES, Columns

_TABLES = ("device", "calls", "ops", "notes", "memory")


def write_parquet(folder: Path, columns: Columns) -> list[Path]:
    """`device.parquet`, `calls.parquet` and so on; names, shapes and threads as words, all times in whole ns."""
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as missing:
        raise MissingExtraError(feature="writing Parquet", extra="parquet") from missing
    words = {
        "name": columns.names,
        "shape": columns.shapes,
        "thread": [columns.thread_names.get(thread, thread) for thread in columns.threads],
    }
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name in _TABLES:
        table = getattr(columns, name)
        arrays = {}
        for field in fields(table):
            values = getattr(table, field.name)
            if field.name in words:
                spoken = pa.array(list(words[field.name]), pa.string())
                arrays[field.name] = pa.DictionaryArray.from_arrays(pa.array(values.astype(np.int32)), spoken)
            else:
                arrays[field.name] = pa.array(values.astype(TYPES[field.name]))
        file = folder / f"{name}.parquet"
        parquet.write_table(pa.table(arrays), file, compression="zstd")
        written.append(file)
    return written
