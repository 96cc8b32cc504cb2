"""What is read of files is kept under their contents: an edited file is another file.

A notebook edits a description and asks again in the same session. What `by_contents` keeps is
therefore good only as long as every file that was read for it holds what it held. While a run is
measured (`steady`), what it has read once stays as it is: all its points are of one description,
the one that its `config.yaml` records, whatever is saved in the meantime.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable
from contextvars import ContextVar
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

_reading: ContextVar[tuple[dict[str, str], ...]] = ContextVar("_reading", default=())
"""SHA-256 of the files read so far, by path, for each thing that is being made."""


class _Runs:
    """Which run is going on; forked workers inherit it."""

    depth = 0
    number = 0


class _Kept(NamedTuple):
    value: Any
    files: dict[str, str]
    run: int
    """In which it was last seen to be current."""


class ByContents(Protocol[P, T_co]):
    """A function whose values are kept."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T_co: ...
    def cache_clear(self) -> None: ...


def read_text(path: str | Path) -> str:
    """The text of a UTF-8 file, with newlines as Python reads them. Raises OSError and
    UnicodeDecodeError."""
    raw = Path(path).read_bytes()
    _note(path, hashlib.sha256(raw).hexdigest())
    return io.TextIOWrapper(io.BytesIO(raw), "utf-8").read()


def sha256_of(path: str | Path) -> str:
    """Of the contents of a file. Raises OSError."""
    digest = hashlib.sha256(Path(path).read_bytes()).hexdigest()
    _note(path, digest)
    return digest


def by_contents(make: Callable[P, T]) -> ByContents[P, T]:
    """Keep what `make` gives for arguments, until a file that it read has other contents. What it
    raises is not kept. Arguments are hashable; files are read by `read_text` and `sha256_of`."""
    kept: dict[Any, _Kept] = {}

    @wraps(make)
    def known(*args: P.args, **kwargs: P.kwargs) -> T:
        key = (args, tuple(sorted(kwargs.items())))
        one = kept.get(key)
        if one is None or not _current(one):
            files: dict[str, str] = {}
            before = _reading.set((*_reading.get(), files))
            try:
                value = make(*args, **kwargs)
            finally:
                _reading.reset(before)
            one = _Kept(value, files, _Runs.number)
        kept[key] = one._replace(run=_Runs.number)
        for path, digest in one.files.items():
            _note(path, digest)
        value = one.value
        return value

    known.cache_clear = kept.clear  # type: ignore[attr-defined]
    return known  # type: ignore[return-value]


def steady(measure: Callable[P, T]) -> Callable[P, T]:
    """While `measure` runs, a description that was read in it is not read again."""

    @wraps(measure)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        if not _Runs.depth:
            _Runs.number += 1
        _Runs.depth += 1
        try:
            return measure(*args, **kwargs)
        finally:
            _Runs.depth -= 1

    return run


def _current(one: _Kept) -> bool:
    """Whether the files of it hold what they held."""
    if _Runs.depth and one.run == _Runs.number:
        return True
    try:
        return all(
            hashlib.sha256(Path(path).read_bytes()).hexdigest() == digest
            for path, digest in one.files.items()
        )
    except OSError:
        return False


def _note(path: str | Path, digest: str) -> None:
    for files in _reading.get():
        files[str(path)] = digest
