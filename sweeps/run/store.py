"""The run directory: what was asked (config.yaml), what came out (results.jsonl), and from what.

One process writes it. A result is one line, on disk before the next is taken; a line torn by a
crash is dropped when the run goes on.
"""

from __future__ import annotations

import contextlib
import csv
import fcntl
import io
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from hwmodel.description.description import DescriptionError
from hwmodel.description.library import names
from hwmodel.description.yaml_reader import load
from hwmodel.description.yaml_writer import plain, to_yaml
from sweeps.analyse.rows import Record

CONFIG, RESULTS, SUMMARY = "config.yaml", "results.jsonl", "summary.csv"
PROVENANCE, CALIBRATION = "provenance.json", "calibration.json"
FINDINGS = "findings.json"
"""What the results say, as data (`sweeps.run.findings`)."""


class RunDirectory:
    """A run directory, there or to be. Nothing is written before `create`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._results: BinaryIO | None = None

    @property
    def exists(self) -> bool:
        return (self.path / CONFIG).is_file()

    @property
    def is_open(self) -> bool:
        """Whether results can be appended."""
        return self._results is not None

    def refuse_if_taken(self) -> None:
        """Raise DescriptionError unless the directory is absent or empty, and can be written."""
        there = next(each for each in (self.path.absolute(), *self.path.absolute().parents)
                     if each.exists())  # fmt: skip
        if there != self.path.absolute() and not there.is_dir():
            raise DescriptionError(f"cannot be made: {there.name} is a file", self.path)
        if there.is_dir() and not os.access(there, os.W_OK | os.X_OK):
            raise DescriptionError("cannot be written", there)
        if self.exists:
            raise DescriptionError(
                "already contains a run; use --resume to continue, or another --out", self.path
            )
        if self.path.is_file() or (
            self.path.is_dir() and any(file.name != RESULTS for file in self.path.iterdir())
        ):
            raise DescriptionError(
                "exists and is not a run directory; use another --out", self.path
            )

    def config(self) -> dict[str, Any]:
        """The recorded config. Raises DescriptionError."""
        if not self.path.exists():
            raise DescriptionError("no such directory", self.path)
        if not self.exists:
            raise DescriptionError(f"is not a run directory (it has no {CONFIG})", self.path)
        return load(self.path / CONFIG).data

    def read_json(self, name: str) -> Any:
        """A JSON file of the directory, None where there is none. Raises DescriptionError."""
        file = self.path / name
        try:
            return json.loads(file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (ValueError, RecursionError) as error:
            raise DescriptionError(f"not JSON: {error}", file) from None

    def lines(self, name: str = RESULTS) -> Iterator[tuple[int, Any]]:
        """Number and content of each whole line of a file of JSON lines, None where that is not
        JSON; nothing where there is no file. What follows the last newline is being written, or
        was torn."""
        file = self.path / name
        if not file.is_file():
            return
        *whole, _ = file.read_bytes().split(b"\n")
        for number, line in enumerate(whole, 1):
            try:
                yield number, _loads(line)
            except (ValueError, RecursionError):
                yield number, None

    def records(self) -> list[Record]:
        """Finished results. Raises DescriptionError for a line that is none."""
        found = []
        for number, line in self.lines():
            if not isinstance(line, dict):
                raise DescriptionError("not a JSON object", self.path / RESULTS, number)
            found.append(line)
        return found

    def survey(self, wanted: dict[str, type]) -> tuple[list[Record], list[str]]:
        """Every result that can be read and has the keys `wanted`, of these types; and what is
        wrong with the rest, a sentence each."""
        file = self.path / RESULTS
        if not file.is_file():
            return [], [f"{RESULTS} is missing"]
        found, problems = [], []
        if file.read_bytes()[-1:] not in (b"", b"\n"):
            problems.append(f"{RESULTS}: the last line is cut off; it is left out")
        for number, line in self.lines():
            if isinstance(line, dict) and all(
                isinstance(line.get(key), kind) for key, kind in wanted.items()
            ):
                found.append(line)
            else:
                problems.append(f"{RESULTS}:{number}: not a result; it is left out")
        return found, problems

    def create(self, config: dict[str, Any], provenance: Record, calibration: Any) -> None:
        """Make the directory and its inputs' record, and open results for appending.

        Raises DescriptionError when another process has them open.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        results = (self.path / RESULTS).open("a+b", buffering=0)
        try:
            fcntl.flock(results, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            results.close()
            raise DescriptionError("another process is running this", self.path) from None
        self._results = results
        trim(results)
        if not self.exists:
            write_atomically(self.path / CONFIG, to_yaml(config))
        write_atomically(self.path / PROVENANCE, _json(provenance, indent=2) + "\n")
        self.write_calibration(calibration)

    def write_calibration(self, calibration: Any) -> None:
        """Replace the capacities."""
        write_atomically(self.path / CALIBRATION, _json(calibration, indent=2) + "\n")

    def append(self, record: Record) -> Record:
        """Add one result and see it onto the disk; as whoever resumes reads it."""
        assert self._results is not None
        line = _json(record)
        try:
            self._results.write((line + "\n").encode())
            os.fsync(self._results.fileno())
        except OSError as error:  # what is torn, the next run cuts off
            raise OSError(error.errno, error.strerror, str(self.path / RESULTS)) from None
        found: Record = json.loads(line)
        return found

    def settle(self, records: list[Record], summary: list[Record]) -> None:
        """Write results in their order, and the summary."""
        write_atomically(self.path / RESULTS, "".join(_json(record) + "\n" for record in records))
        write_atomically(self.path / SUMMARY, to_csv(summary))

    def release(self) -> None:
        """Let go of the directory; what is written stays."""
        if self._results is not None:
            self._results.close()
            self._results = None


def _loads(line: bytes) -> Any:
    """JSON, in which NaN and Infinity are none. Raises ValueError, RecursionError."""

    def refuse(name: str) -> None:
        raise ValueError(name)

    return json.loads(line, parse_constant=refuse)


def default_directory(name: str, resume: bool) -> Path:
    """`runs/<name>-<n>`: the last one there to resume, else the first number above."""
    taken = [
        int(match.group(1))
        for path in Path("runs").glob(f"{Path(name).name}-*")
        if (match := re.fullmatch(re.escape(name) + r"-([0-9]+)", path.name))
    ]
    number = max(taken, default=0)
    return Path("runs") / f"{name}-{number if resume and number else number + 1}"


def last_run(given: Path) -> Path:
    """A run directory, `<name>-<n>` of runs, or the last of the name that is given instead. Raises
    DescriptionError for a shipped name that was never run."""
    if given.exists():
        return given
    if (whole := Path("runs") / given).is_dir():
        return whole
    if (last := default_directory(str(given), resume=True)).exists():
        return last
    if str(given) in [*names("sweeps"), *names("studies")]:
        raise DescriptionError(f"no run of it here; first: bankwise run {given}", given)
    return given


def write_atomically(path: Path, content: str | bytes) -> None:
    """Replace what is in `path`, whole or not at all; text is written as UTF-8."""
    draft = path.with_name(path.name + ".part")
    try:
        with draft.open("wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise OSError(error.errno, error.strerror, str(path)) from None


def trim(results: BinaryIO) -> None:
    """Cut what follows the last newline."""
    results.seek(0)
    content = results.read()
    whole = content.rfind(b"\n") + 1
    if whole < len(content):
        results.truncate(whole)


def _json(value: Any, indent: int | None = None) -> str:
    return json.dumps(plain(value), indent=indent, allow_nan=False)


def to_csv(rows: list[Record]) -> str:
    """Rows as CSV, a column a key."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()
