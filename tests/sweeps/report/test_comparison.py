"""Does a comparison say what differs, and how sure that is?"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from sweeps.analyse.comparison import Comparison, decisive
from sweeps.report.comparison_page import change_text, record, section, sentences
from sweeps.report.comparison_page import compare as compare_findings
from sweeps.report.contents import read_report
from sweeps.report.markdown import markdown
from sweeps.report.page import page
from tests.sweeps.made import CONFIG, made


def compare(a: Path, b: Path) -> Comparison:
    return compare_findings(read_report(a).findings, read_report(b).findings)


def both(tmp_path: Path, odma: float = 130.0, **changes: Any) -> Comparison:
    """The made run against one in which something differs."""
    return compare(made(tmp_path / "a"), made(tmp_path / "b", odma, **changes))


def test_a_run_is_the_same_as_itself(tmp_path: Path) -> None:
    found = both(tmp_path)
    assert found.inputs == found.code == [] and len(found.pairs) == 8
    assert all(pair.same for pair in found.pairs) and not found.turned


def test_a_change_in_one_point_is_told_with_its_interval(tmp_path: Path) -> None:
    found = both(tmp_path, odma=156.0)
    odma = next(pair for pair in found.pairs if pair.title == "card, odma")
    change = decisive(odma)
    assert change is not None and change.certain == "more" and change.paired
    assert change.change.mean == pytest.approx(0.2)  # 156 / 130 in each replication
    assert (change.ours, change.theirs) == (pytest.approx(132.6), pytest.approx(159.12))
    assert {c.certain for p in found.pairs if "paged" in p.title for c in p.changes} == {"the same"}
    less = compare(tmp_path / "b", tmp_path / "a")
    back = next(c for p in less.pairs if p.title == "card, odma" for c in [decisive(p)])
    assert back is not None and (back.certain, round(back.change.mean, 3)) == ("less", -0.167)


def test_other_seeds_do_not_pair_and_noise_is_not_significant(tmp_path: Path) -> None:
    found = both(tmp_path, odma=130.5, seed=2)
    odma = next(pair for pair in found.pairs if pair.title == "card, odma")
    change = decisive(odma)
    assert change is not None and change.certain == "not significant" and not change.paired
    assert change.change.mean == pytest.approx(0.004, abs=0.001)
    assert "independent samples" in markdown([section(found)])


def test_inputs_that_differ_are_named(tmp_path: Path) -> None:
    config = copy.deepcopy(CONFIG)
    config["base"]["warmup_requests"] = 30
    found = both(tmp_path, config=config)
    assert found.inputs == [("base.warmup_requests", 20, 30)]


def test_another_winner_is_a_change_of_the_verdict(tmp_path: Path) -> None:
    first, _ = both(tmp_path, 50).turned
    outcomes = {name: each.best for name, each in first.outcomes.items()}
    assert (first.title, outcomes) == ("card", {"a": "odma", "b": "paged"})


def test_an_axis_of_one_run_meets_the_base_of_the_other(tmp_path: Path) -> None:
    from sweeps.run.store import RunDirectory
    from tests.sweeps.made import PROVENANCE, metrics

    config = copy.deepcopy(CONFIG)
    config["base"]["device"] = "card"
    del config["axes"]["device"]
    run = RunDirectory(tmp_path / "b")
    run.create(config, PROVENANCE, {})
    for replication in (1, 2, 3):
        run.append(
            {"point": 0, "control": "", "replication": replication, "seed": [1, replication],
             "overrides": {"serving.policy": "odma"}, "metrics": metrics(99.0), "rate_per_s": 1.0}
        )  # fmt: skip
    run.release()
    found = compare(made(tmp_path / "a"), tmp_path / "b")
    assert [pair.title for pair in found.pairs] == ["card, odma"]
    assert len(found.alone["a"]) == 7 and found.alone["b"] == []


def test_nothing_in_common(tmp_path: Path) -> None:
    from sweeps.run.store import RESULTS

    ours, theirs = made(tmp_path / "a"), made(tmp_path / "b")
    text = (theirs / RESULTS).read_text().replace('"card"', '"third"').replace("other", "fourth")
    (theirs / RESULTS).write_text(text)
    found = compare(ours, theirs)
    assert found.pairs == [] and len(found.alone["a"]) == len(found.alone["b"]) == 8


def test_a_metric_with_zeros_changes_by_a_difference(tmp_path: Path) -> None:
    found = both(tmp_path, migrations=0)
    change = next(c for c in found.pairs[0].changes if c.figure.metric == "migrations")
    assert not change.relative and change.change.mean == -3
    assert (change_text(change), change.certain) == ("-3 (-3 to -3)", "less")


def test_one_replication_is_not_certain(tmp_path: Path) -> None:
    from sweeps.run.store import RESULTS

    ours, theirs = made(tmp_path / "a"), made(tmp_path / "b", 143)
    for path in (ours, theirs):
        lines = (path / RESULTS).read_text().splitlines()
        kept = [line for line in lines if json.loads(line)["replication"] == 1]
        (path / RESULTS).write_text("\n".join(kept) + "\n")
    changes = [decisive(pair) for pair in compare(ours, theirs).pairs]
    assert {each.certain for each in changes if each} == {"unknown"}


def test_all_forms_say_the_same(tmp_path: Path) -> None:
    found = both(tmp_path, odma=143.0)
    told = record(found)
    assert told["sentences"] == sentences(found)
    assert len(told["points"]) == 8 and json.dumps(told)
    html, text = page([section(found)]), markdown([section(found)])
    for sentence in sentences(found):
        assert sentence in text
        assert sentence.rpartition(": ")[2].replace(" %", "\xa0%").replace(">", "&gt;") in html
