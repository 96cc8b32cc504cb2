"""Results of a run as Parquet: a row a result, with the unit of each column in its metadata.

Needs pyarrow, of the extra `data`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hwmodel.description.description import DescriptionError
from sweeps.analyse.label import label
from sweeps.analyse.rows import Record, flat, is_number
from sweeps.run.store import RunDirectory
from sweeps.run.version import version

UNITS = {
    "gbps": "10^9 B/s", "bytes": "B", "tokens": "tokens", "slots": "tokens", "s": "s", "ms": "ms",
    "us": "us", "ns": "ns", "nj": "nJ", "mj": "mJ", "per_s": "1/s", "tokens_per_s": "tokens/s",
    "mj_per_token": "mJ/token", "w": "W", "watts": "W", "share": "1", "rate": "1", "ci95": "1",
    "utilization": "1", "fragmentation": "1", "attainment": "1",
}  # fmt: skip
"""End of a metric's name -> its unit. Names end in their unit; `share`: of the whole."""
_QUANTILES = ("mean", "max", "min", "p50", "p90", "p95", "p99", "low", "high")
"""Ends of a name that stand behind its unit."""


def unit_of(name: str) -> str | None:
    """The unit of a metric by its dotted name; None of one that is a count, or has none."""
    parts = [part for part in name.split(".") if part not in _QUANTILES]
    for part in reversed(parts):
        found = [end for end in UNITS if part == end or part.endswith(f"_{end}")]
        if found:
            return UNITS[max(found, key=len)]
    return None


def rows(directory: RunDirectory) -> list[Record]:
    """A flat row a result of a sweep or a study: what made it, and the numbers that it has; lists
    and texts of the metrics are left out. Raises DescriptionError where there is none."""
    found = []
    for record in directory.records():
        row: Record = {}
        for key in ("point", "trial", "control", "replication", "state", "wall_s", "rate_per_s"):
            if key in record:
                row[key] = record[key]
        for path, value in record.get("overrides", {}).items():
            row[path] = value if is_number(value) or isinstance(value, str) else label(value)
        metrics = flat(record.get("metrics") or {})
        row |= {key: float(value) for key, value in metrics.items() if is_number(value)}
        found.append(row)
    if not found:
        raise DescriptionError("has no results", directory.path)
    return found


def write_parquet(run: Path, out: Path) -> tuple[int, int]:
    """Write a run's results; returns rows and columns. Raises DescriptionError where pyarrow is not
    installed, `out` has another ending, and where `run` is none."""
    if out.suffix != ".parquet":
        raise DescriptionError("expected a name that ends in .parquet", out)
    try:
        import pyarrow  # of an extra
        import pyarrow.parquet
    except ImportError:
        raise DescriptionError("pip install 'bankwise[data]'", "--format parquet") from None
    directory = RunDirectory(run)
    config, found = directory.config(), rows(directory)
    names = list(dict.fromkeys(name for row in found for name in row))
    columns, fields = [], []
    for name in names:
        array = pyarrow.array(_of_one_type([row.get(name) for row in found]))
        unit = unit_of(name)
        fields.append(pyarrow.field(name, array.type, metadata={"unit": unit} if unit else None))
        columns.append(array)
    about = {"bankwise": version(), "name": str(config.get("name")), "kind": str(config["kind"])}
    table = pyarrow.Table.from_arrays(columns, schema=pyarrow.schema(fields, metadata=about))
    out.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(table, out)
    return table.num_rows, table.num_columns


def _of_one_type(values: list[Any]) -> list[Any]:
    """A column: texts where some are, as of an axis of numbers and names."""
    if not any(isinstance(value, str) for value in values):
        return values
    return [None if value is None else str(value) for value in values]
