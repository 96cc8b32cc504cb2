"""Does a report of each kind say of a made run what it said when it was last looked at?"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hwmodel.description.yaml_writer import plain
from sweeps.analyse.statistics import Interval
from sweeps.report import comparison_page
from sweeps.report.contents import read_report
from sweeps.run import store
from sweeps.run.explanation import CausePart, Explanation, record
from sweeps.run.store import RESULTS, RunDirectory
from sweeps.sections.section import Section
from tests.sweeps.made import CONFIG, PROVENANCE, made, metrics
from tests.sweeps.plan.test_crossing import run as search
from tests.sweeps.plan.test_crossing_map import run as answer
from tests.sweeps.plan.test_least import run as least
from tests.sweeps.plan.test_what_if import planted
from tests.sweeps.report.golden import held, text_of
from tests.sweeps.report.test_cases import cases
from tests.sweeps.report.test_odma_paper import planted_paper as paper
from tests.sweeps.study.test_study_report import study

SOME, MORE = (Interval(math.log(x), math.log(x) - 0.05, math.log(x) + 0.05, 3) for x in (1.4, 0.93))
WHY = Explanation(
    "card", "odma", "paged", Interval(SOME.mean + MORE.mean, 0.2, 0.3, 3),
    [CausePart("holes", "", SOME, SOME, Interval(0, -0.1, 0.1, 3)),
     CausePart("line", "", MORE, MORE, Interval(0, -0.1, 0.1, 3))],
    Interval(0, 0, 0, 3), {"": SOME, "weights": SOME, "compute": MORE}, [],
)  # fmt: skip


def whole(path: Path, odma: float = 130) -> Path:
    """A run with a record of who held which slots, and an explanation."""
    made(path, odma)
    (path / "logs").mkdir()
    (path / "logs/point0-r1-memory.csv").write_text(
        "request,first_slot,slots,from_s,until_s\n7,100,100,0,4\n8,0,100,0,1\n9,0,90,1,4\n"
    )
    (path / "explain").mkdir()
    (path / "explain/explanation.json").write_text(json.dumps(plain(record([WHY], {}))))
    return path


def kv_reads(path: Path) -> Path:
    run = RunDirectory(path)
    axes = {"device_set.dma.window": ["4KiB", "8KiB"], "batch.policy": ["paged", "oracle"]}
    run.create({**CONFIG, "axes": axes, "variants": {}, "compare": "batch.policy"}, PROVENANCE, {})
    rates = {("4KiB", "paged"): 100, ("4KiB", "oracle"): 150,
             ("8KiB", "paged"): 200, ("8KiB", "oracle"): 202}  # fmt: skip
    for index, (at, rate) in enumerate(rates.items()):
        for replication in (1, 2, 3):
            found = {"kv_gbps": rate * (1 + 0.01 * replication * (index == 3)), "kv_share": 0.2,
                     "extent_bytes": 16384.0, "row_hit_rate": 0.7}  # fmt: skip
            run.append({"point": index, "replication": replication, "metrics": found,
                        "overrides": dict(zip(axes, at, strict=True))})  # fmt: skip
    run.release()
    return path


def with_limits(path: Path) -> Path:
    limit = {
        name: {"of": of, "bounds": bounds, "levels": [0.5, 1.0], "unused": unused}
        for name, of, bounds, unused in (
            ("least", "total", [64, 128], 0.1), ("chosen", "total", [64, 192], 0.2),
            ("base", "output", [32, 96], 0.3),
        )
    }  # fmt: skip
    (path / "limit.json").write_text(json.dumps(limit))
    return path


def bound_elsewhere(change: str, policy: str) -> dict[str, Any]:
    """With `large` FLOPs bind, and take most of a step."""
    kv, compute = (0.1, 0.7) if change == "large" else (0.9, 0.2)
    return {"limit_share": {"kv_memory": kv, "compute": 1 - kv}, "compute_share": compute}


def of_card(path: Path) -> Path:
    """One point of a run that has its device in the base, not as an axis."""
    base, axes = CONFIG["base"] | {"device": "card"}, {"serving.policy": ["odma"]}
    run = RunDirectory(path)
    run.create({**CONFIG, "base": base, "axes": axes}, PROVENANCE, {})
    for replication in (1, 2, 3):
        run.append({"point": 0, "control": "", "replication": replication, "rate_per_s": 1.0,
                    "seed": [1, replication], "overrides": {"serving.policy": "odma"},
                    "metrics": metrics(99.0)})  # fmt: skip
    run.release()
    return path


def kept(path: Path, change: Callable[[str], str]) -> Path:
    """With each result changed, or left out."""
    lines = (path / RESULTS).read_text().splitlines(keepends=True)
    (path / RESULTS).write_text("".join(map(change, lines)))
    return path


def by_another_version(path: Path) -> Path:
    known = {**PROVENANCE, "version": "0.0.9", "libraries": {"numpy": "1", "numba": "0.60"}}
    (path / store.PROVENANCE).write_text(json.dumps(known))
    return path


def first_only(line: str) -> str:
    return line if json.loads(line)["replication"] == 1 else ""


def elsewhere(line: str) -> str:
    return line.replace('card"', 'x"').replace("other", "y")


def compared(path: Path) -> Iterator[Section]:
    first = made(path / "a", goodput_per_s=2.0)
    warm = {**CONFIG, "base": {**CONFIG["base"], "warmup_requests": 30}}
    pairs = [
        (first, made(path / "faster", 143.0, goodput_per_s=2.5)),
        (first, made(path / "slower", 50, migrations=0)),
        (first, made(path / "other seeds", 130.5, seed=2, migrations=0)),
        (first, made(path / "other settings", config=warm)),
        (first, of_card(path / "of the card")),
        (first, by_another_version(made(path / "by another version"))),
        (
            first,
            kept(
                made(path / "apart"), lambda line: line.replace('card"', 'x"').replace("other", "y")
            ),
        ),
        (kept(made(path / "once"), first_only), kept(made(path / "once more", 143), first_only)),
    ]
    for pair in pairs:
        two = (read_report(each).findings for each in pair)
        yield comparison_page.section(comparison_page.compare(*two))


RUNS: dict[str, Callable[[Path, pytest.MonkeyPatch], Any]] = {
    "sweep": lambda path, _: whole(path),
    "cases": lambda path, _: cases(path),
    "unfinished": lambda path, _: made(path, skip=3),
    "kv-read": lambda path, _: kv_reads(path),
    "study": lambda path, _: with_limits(study(path)),
    "study without finale": lambda path, _: study(path, finale=False),
    "what-if": lambda path, _: planted(path, more=bound_elsewhere),
    "break-even": search,
    "answer": answer,
    "least": least,
    "odma-paper": paper,
}


ENDS = {
    "what-if": "\n## as described\n",
    **dict.fromkeys(("break-even", "answer", "least", "odma-paper"), "\n## What was run\n"),
}
"""Before what another kind shows too, or what a run of shipped descriptions records of them."""


@pytest.mark.parametrize("kind", RUNS)
def test_a_report_is_as_it_was_last_looked_at(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweeps.study.trials.RESAMPLES", 10)
    monkeypatch.setattr("sweeps.report.study_sections.RESAMPLES", 10)
    if kind == "study":
        monkeypatch.setattr("sweeps.report.study_sections.LEAST", 10)
    RUNS[kind](tmp_path / "made", monkeypatch)
    text, _, _ = text_of(read_report(tmp_path / "made").section).partition(ENDS.get(kind, "\0"))
    held(kind, text)


def test_a_comparison_is_as_it_was_last_looked_at(tmp_path: Path) -> None:
    held("comparison", text_of(*compared(tmp_path)))
