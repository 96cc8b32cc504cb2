"""Physical memory over time, from the record of a run: who holds which slots."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from policies.requests.requests import IntArray
from policies.serving.memory_log import MemoryLog
from sweeps.plan.logs import FOLDER, MEMORY, stem_of
from sweeps.sections.chart import Axis, RowSpan, Spans

_ACROSS, _UP = 120, 100
"""Places of the grid in time and in memory."""
_STAYS = 6.0
"""The map shows so many times the mean stay in memory, or all that was recorded."""
_FREE = -1


def memory_map(run: Path, name: str, point: int, replication: int) -> Spans | None:
    """The map of a replication, None where its memory was not recorded or cannot be read."""
    record = run / FOLDER / f"{stem_of(point, replication)}-{MEMORY}"
    try:
        lines = record.read_text().splitlines()[1:]
        rows = np.loadtxt(lines, delimiter=",", ndmin=2) if lines else np.zeros((0, 0))
    except (OSError, ValueError):
        return None
    if rows.shape[1] != len(MemoryLog.COLUMNS):
        return None
    cards = np.unique(rows[:, 5]).astype(np.int64)
    rows = rows[rows[:, 5] == cards[0]]
    begin_s, end_s = float(rows[:, 3].min()), float(rows[:, 4].max())
    top = int((rows[:, 1] + rows[:, 2]).max())
    stay_s = float((rows[:, 4] - rows[:, 3]).mean())
    end_s = min(end_s, begin_s + max(_STAYS * stay_s, 1e-9))
    holders = _grid(rows, begin_s, end_s, top)
    width, height = (end_s - begin_s) / _ACROSS, top / _UP
    spans = [
        RowSpan("", begin_s + x * width, begin_s + (x + count) * width, str(whose), "", y * height,
             (y + high) * height)
        for x, count, y, high, whose in _patches(holders)
    ]  # fmt: skip
    which = f" of replica {cards[0]}" if len(cards) > 1 else ""
    return Spans(
        f"{name}: memory{which} over time, who holds which slots",
        Axis("simulated time, s", zero=False, tight=True), [], spans, {},
        y=Axis("token slot of the KV memory", tight=True), holder="request",
        note=f"From the record of replication {replication}: the holder at the middle of each"
        f" of {_ACROSS} x {_UP} places. Eight colours, in turn by request; what is blank is free.",
        figure="memory",
    )  # fmt: skip


def _grid(rows: np.ndarray, begin_s: float, end_s: float, top: int) -> IntArray:
    """int64 (places up, places across): the request at the middle of each place, or _FREE."""
    holders = np.full((_UP, _ACROSS), _FREE, np.int64)
    across, up = _ACROSS / (end_s - begin_s), _UP / top
    # a place's middle lies at its number and a half
    left, right = (np.ceil((rows[:, i] - begin_s) * across - 0.5) for i in (3, 4))
    low, high = np.ceil(rows[:, 1] * up - 0.5), np.ceil((rows[:, 1] + rows[:, 2]) * up - 0.5)
    seen = np.flatnonzero((left < right) & (low < high) & (left < _ACROSS) & (right > 0))
    ends = np.stack([left, right, low, high, rows[:, 0]], axis=1)[seen].astype(np.int64)
    for a, b, c, d, request in ends.tolist():
        holders[c:d, max(a, 0) : b] = request
    return holders


def _patches(holders: IntArray) -> list[tuple[int, int, int, int, int]]:
    """(place across, how many, place up, how many, request): rows of one holder, those alike in
    neighbouring rows as one."""
    found: list[tuple[int, int, int, int, int]] = []
    open_runs: dict[tuple[int, int, int], int] = {}
    for y in range(len(holders) + 1):
        runs = set(_runs(holders[y])) if y < len(holders) else set()
        for run in open_runs.keys() - runs:
            start = open_runs.pop(run)
            found.append((run[0], run[1], start, y - start, run[2]))
        for run in runs:
            open_runs.setdefault(run, y)
    return sorted(found)


def _runs(row: IntArray) -> list[tuple[int, int, int]]:
    """(first place, how many, request) of the stretches of one holder."""
    edges = np.flatnonzero(np.diff(row)) + 1
    starts, ends = np.concatenate(([0], edges)), np.concatenate((edges, [len(row)]))
    pairs = zip(starts.tolist(), ends.tolist(), strict=True)
    return [(a, b - a, int(row[a])) for a, b in pairs if row[a] != _FREE]
