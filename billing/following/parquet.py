"""Files of usage that stand alone: one for each day of the books, read without this database."""

import os
import uuid
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from billing.following.sealing import RECORD

ROW_GROUP = 10_000
"""Records that are held at once, at some 8 kB each while they change form, and read to find one."""
TYPES: dict[str, pa.DataType] = (
    dict.fromkeys(
        ("input_tokens", "cached_input_tokens", "output_tokens", "reasoning_tokens"), pa.int32()
    )
    | dict.fromkeys(("input_nanos", "cached_input_nanos", "output_nanos", "digest"), pa.int64())
    | dict.fromkeys(("queue_seconds", "ttft_seconds", "total_seconds"), pa.float32())
    | dict.fromkeys(("lease_ids", "lease_nanos"), pa.list_(pa.int64()))
    | dict.fromkeys(("streamed", "is_waived"), pa.bool_())
    | {"rating": pa.int16()}
)
"""All other columns are texts. Money is whole nano-dollars."""
SCHEMA = pa.schema([(name, TYPES.get(name, pa.string())) for name in RECORD])


def write(path: Path, groups: Iterable[Sequence[tuple[Any, ...]]]) -> int:
    """Write records, sorted by event id, to a file, down to the disk; return how many."""
    count = 0
    with pq.ParquetWriter(path, SCHEMA, compression="zstd") as writer:
        for rows in groups:
            columns = [
                pa.array(column, field.type)
                for column, field in zip(zip(*rows, strict=True), SCHEMA, strict=True)
            ]
            writer.write_batch(pa.record_batch(columns, schema=SCHEMA))
            count += len(rows)
    _sync(path)
    return count


def put_in_place(path: Path, target: Path) -> None:
    """Give a written file its name, for good."""
    path.replace(target)
    _sync(target.parent)


def read(path: Path) -> Iterator[list[tuple[Any, ...]]]:
    """Yield the records of a file, a group at a time."""
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=ROW_GROUP):
            columns = [column.to_pylist() for column in batch.columns]
            yield list(zip(*columns, strict=True))


def find(path: Path, event_id: uuid.UUID, organization_id: str) -> dict[str, Any] | None:
    """Return an organization's event from a file; only the group that may hold it is read."""
    wanted = [("event_id", "=", str(event_id)), ("organization_id", "=", organization_id),
              ("kind", "=", "event")]  # fmt: skip
    found: list[dict[str, Any]] = pq.read_table(path, filters=wanted).to_pylist()
    return found[0] if found else None


def select(
    path: Path, organization_id: str, first: uuid.UUID, last: uuid.UUID, *, page: int
) -> Iterator[list[dict[str, Any]]]:
    """Yield an organization's events with ids in [first, last) of a file, a page at a time; groups
    that hold none of them are not read."""
    event_id = ds.field("event_id")
    mine = (ds.field("organization_id") == organization_id) & (ds.field("kind") == "event")
    wanted = mine & (event_id >= str(first)) & (event_id < str(last))
    batches = ds.dataset(path, format="parquet").to_batches(
        filter=wanted, batch_size=page, batch_readahead=1, fragment_readahead=1
    )
    for batch in batches:
        if batch.num_rows:
            yield batch.to_pylist()


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
