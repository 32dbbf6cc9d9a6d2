"""Read a run for Python: its records, a pandas frame of them, and a Parquet file.

pandas and pyarrow are imported where they are used: `import gpuperf` needs neither.
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuperf.errors import GpuperfError, UsageError
from gpuperf.files import write_atomically
from gpuperf.model import record
from gpuperf.roofline.columns import RowColumn, column_of, in_order
from gpuperf.roofline.formats import flatten
from gpuperf.roofline.rows import entries_of_records, row
from gpuperf.run import store

if TYPE_CHECKING:
    import pandas

INT64 = 2**63  # a column of larger counts is of floats, and an axis of larger numbers of texts
DTYPES = {"text": "string", "number": "float64", "count": "Int64", "flag": "bool"}


@dataclass(frozen=True)
class Run(record.Run):
    """A run file that was read: the header, the last record of each key, and the lines that could
    not be read."""

    def frame(self) -> pandas.DataFrame:
        """Return one row for each record, whatever its `status`, as a pandas DataFrame.

        The columns are those of `gpuperf show RUN --format csv`, in SI units: `time_s`,
        `time_low_s` and `time_high_s` (median and 95 % interval), `flop_per_s`,
        `fraction_of_attainable`, `status`, `caveats` … Axes are `point.m`, options of the
        implementation `options.tile`, other times `times.busy`, counters
        `counters.dram_read_bytes`. A missing figure is NaN or NA. Whole numbers have the dtype
        Int64, axes that mix numbers and names are texts. `frame.attrs["units"]` and
        `frame.attrs["meanings"]` have the unit and the meaning of each column, and
        `frame.attrs["run"]` the id of the run.

        A comparison over several processes has one row for each process (`pass`), where the csv
        combines them; `speedup` is that of the case over all processes.

        Raises: GpuperfError without pandas.
        """
        pandas = _import("pandas", "frames")
        rows = [flatten(row(entry)) for entry in entries_of_records(self)]
        names = in_order(name for each in rows for name in each)
        columns = [column_of(name) for name in names]
        series = {c.name: _series(pandas, c, [r.get(c.name) for r in rows]) for c in columns}
        frame = pandas.DataFrame(series)
        frame.attrs = {
            "run": self.header.run,
            "units": {column.name: column.unit for column in columns},
            "meanings": {column.name: column.meaning for column in columns},
        }
        return frame

    def to_parquet(self, path: str | Path) -> None:
        """Write `frame()` as the Parquet file *path*; `pandas.read_parquet` reads an equal frame.

        The metadata of each field has its `unit` and its `meaning`.

        Raises: GpuperfError without pandas or pyarrow; UsageError if *path* cannot be written.
        """
        frame = self.frame()
        pyarrow = _import("pyarrow", "Parquet files")
        parquet = _import("pyarrow.parquet", "Parquet files")
        table = pyarrow.Table.from_pandas(frame, preserve_index=False)
        fields = [
            field.with_metadata(
                {
                    "unit": frame.attrs["units"][field.name],
                    "meaning": frame.attrs["meanings"][field.name],
                }
            )
            for field in table.schema
        ]
        # Where pandas itself keeps `attrs`, so that its reader restores them.
        metadata = {**table.schema.metadata, b"PANDAS_ATTRS": json.dumps(frame.attrs).encode()}
        buffer = io.BytesIO()
        parquet.write_table(table.cast(pyarrow.schema(fields, metadata)), buffer)
        try:
            write_atomically(path, buffer.getvalue())
        except OSError as error:
            raise UsageError(
                f"{path} cannot be written: {error.strerror}", "choose another file"
            ) from None


def read_run(path: str | Path) -> Run:
    """Read the run file *path*, plain or compressed by gzip.

    `.header` says what was measured under which conditions, `.records` has a `Record` for each
    measurement, and `.frame()` the same as a table.

    Raises: RunFileError unless the file contains exactly one run.
    """
    run = store.read_run(path)
    return Run(run.header, run.records, run.problems)


def _series(pandas: Any, column: RowColumn, values: Sequence[Any]) -> Any:
    known = [value for value in values if value is not None]
    kind = column.kind
    if kind == "mixed":
        whole = known and all(isinstance(v, int) and -INT64 <= v < INT64 for v in known)
        kind = "count" if whole else "text"
    if kind == "count" and not all(-INT64 <= value < INT64 for value in known):
        kind = "number"
    if kind == "text":
        values = [None if value is None else str(value) for value in values]
    elif kind == "number":
        values = [None if value is None else float(value) for value in values]
    return pandas.Series(values, dtype=DTYPES[kind])


def _import(module: str, need: str) -> Any:
    """Import *module*, which *need* need. Raises: GpuperfError if it is not installed."""
    from importlib import import_module

    package = module.partition(".")[0]
    try:
        return import_module(module)
    except ImportError:
        raise GpuperfError(
            f"{need} need the package {package}, which is not installed",
            "pip install 'gpuperf[frames]'",
        ) from None
