"""A timeline of DRAM commands as JSON trace events, for ui.perfetto.dev or chrome://tracing.

Format: "Trace Event Format" (Chromium project): every stretch is a complete event (X), a row of the
timeline a thread, what lasts (an open row, a refresh) a thread beside it, as events of one thread
have to nest. Times in microseconds.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from sweeps.run.store import write_atomically
from sweeps.sections.chart import Spans

ENDINGS = (".json", ".json.gz")
"""Of files that hold such a trace."""


def chrome_trace(chart: Spans, process: str, unit_ns: float) -> dict[str, Any]:
    """The trace of a timeline whose axis counts units of `unit_ns`."""
    threads: dict[str, int] = {}
    for name in chart.names:
        for beside in ("", ", state"):
            threads[name + beside] = len(threads) + 1
    events: list[dict[str, Any]] = [
        {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": process}}
    ]
    used = dict.fromkeys(_thread(chart, span.row, span.kind) for span in chart.spans)
    for name in sorted(used, key=threads.__getitem__):
        thread = {"ph": "M", "pid": 1, "tid": threads[name]}
        events.append({**thread, "name": "thread_name", "args": {"name": name}})
        events.append(
            {**thread, "name": "thread_sort_index", "args": {"sort_index": threads[name]}}
        )
    events += [
        {
            "ph": "X", "pid": 1, "tid": threads[_thread(chart, span.row, span.kind)],
            "name": span.kind, "ts": span.start * unit_ns / 1e3,
            "dur": (span.end - span.start) * unit_ns / 1e3,
            "args": {"what": span.words, chart.x.label: [span.start, span.end]},
        }
        for span in chart.spans
    ]  # fmt: skip
    return {"displayTimeUnit": "ns", "traceEvents": events}


def _thread(chart: Spans, row: str, kind: str) -> str:
    return f"{row}, state" if kind in chart.pale else row


def write_trace(file: Path, trace: dict[str, Any]) -> None:
    """Write it as JSON, packed where the name ends in .gz."""
    text = json.dumps(trace, separators=(",", ":")) + "\n"
    packed = gzip.compress(text.encode(), 5, mtime=0)
    write_atomically(file, packed if file.suffix == ".gz" else text)
