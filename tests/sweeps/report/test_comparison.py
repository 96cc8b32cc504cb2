"""Does a comparison say what differs, and how sure that is?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sweeps.analyse.comparison import Comparison
from sweeps.analyse.figures import GOODPUT, THROUGHPUT
from sweeps.report.comparison_page import compare as compare_findings
from sweeps.report.comparison_page import record, section, sentences
from sweeps.report.contents import read_report
from sweeps.report.markdown import markdown
from sweeps.report.page import page
from tests.sweeps.made import made


def compare(a: Path, b: Path) -> Comparison:
    return compare_findings(read_report(a).findings, read_report(b).findings)


def both(tmp_path: Path, odma: float = 130.0, **changes: Any) -> Comparison:
    """The made run against one in which something differs."""
    return compare(made(tmp_path / "a"), made(tmp_path / "b", odma, **changes))


def test_a_run_is_the_same_as_itself(tmp_path: Path) -> None:
    found = both(tmp_path)
    assert found.inputs == found.code == [] and len(found.pairs) == 8
    assert all(pair.same for pair in found.pairs) and not found.turned


@pytest.mark.parametrize("seed", [1, 2])
def test_a_goodput_that_all_replications_share_is_one_value(tmp_path: Path, seed: int) -> None:
    found = compare(
        made(tmp_path / "a", goodput_per_s=2.0), made(tmp_path / "b", seed=seed, goodput_per_s=3.0)
    )
    change = next(c for c in found.pairs[0].changes if c.figure.metric == GOODPUT)
    assert (change.ours, change.theirs, change.change.count) == (2.0, 3.0, 1)
    assert change.change.mean == pytest.approx(0.5) and change.certain == "unknown"


def test_what_only_one_run_has_of_a_point_is_no_change(tmp_path: Path) -> None:
    for name, changes in (("a", {"tpot_s": {}}), ("b", {}), ("c", {"tpot_s": {}})):
        made(tmp_path / name, **changes)
    for first, second in ("ab", "bc"):
        changes = compare(tmp_path / first, tmp_path / second).pairs[0].changes
        told = {each.figure.metric for each in changes}
        assert THROUGHPUT in told and not any(name.startswith("tpot") for name in told)


def test_all_forms_say_the_same(tmp_path: Path) -> None:
    found = both(tmp_path, odma=143.0)
    told = record(found)
    assert told["sentences"] == sentences(found)
    assert len(told["points"]) == 8 and json.dumps(told)
    html, text = page([section(found)]), markdown([section(found)])
    for sentence in sentences(found):
        assert sentence in text
        assert sentence.rpartition(": ")[2].replace(" %", "\xa0%").replace(">", "&gt;") in html
