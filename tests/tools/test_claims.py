"""Do verdicts on claims of papers follow from the interval that would refute them?"""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from tools import release
from tools.claims import FILE, Claim, agreed, ours, read_claims, settling, verdict, verdicts
from tools.figures import ROOT, SECOND, FigureError, read_results

TWICE = Claim(["made/gap"], 2.0, 2.0, exact=False, none=1.0, how=".2f")
MORE = Claim(["made/gap"], 1.0, math.inf, exact=True, none=1.0, how=".2f")
COUNT = Claim(["made/count"], 7.0, 7.0, exact=False, none=None, how=".1f")


@pytest.mark.parametrize(
    ("claim", "low", "high", "said"),
    [
        (TWICE, 1.85, 2.15, "reproduced"),
        (TWICE, 1.2, 1.7, "direction"),
        (TWICE, 2.4, 3.0, "direction"),
        (TWICE, 1.2, 1.9, "direction, size undecided"),
        (TWICE, 0.9, 1.9, "undecided"),
        (TWICE, 0.9, 1.1, "refuted here"),
        (TWICE, 0.5, 0.9, "refuted here"),
        (MORE, 1.01, 1.2, "reproduced"),
        (MORE, 0.99, 1.2, "undecided"),
        (MORE, 0.9, 0.99, "refuted here"),
        (COUNT, 6.5, 7.5, "reproduced"),
        (COUNT, 6.0, 6.6, "undecided"),
        (COUNT, 5.0, 6.0, "another size"),
    ],
)
def test_a_verdict_is_where_the_whole_interval_lies(
    claim: Claim, low: float, high: float, said: str
) -> None:
    assert verdict(claim, (math.sqrt(low * high), low, high), 0.1) == said


def test_a_claim_that_nothing_changes_has_no_side() -> None:
    same = Claim(["made/gap"], 1.0, 1.0, exact=False, none=1.0)
    assert verdict(same, (1.01, 0.95, 1.05), 0.1) == "reproduced"
    assert verdict(same, (1.01, 0.85, 1.19), 0.1) == "undecided"
    assert verdict(same, (1.2, 1.15, 1.25), 0.1) == "refuted here"


def test_what_is_undecided_says_how_many_replications_would_settle_it() -> None:
    # from 1.7 to the margin's end 1.8 are 0.0572 of a logarithm; half of the interval has 0.2304,
    # of a standard deviation of 0.2756, so that 1.99 * 0.2756 / sqrt(92) is less and 91 are too few
    assert settling(TWICE, (1.7, 1.35, 2.14), 0.1) == "92"
    assert settling(TWICE, (1.8, 1.35, 2.4), 0.1) == "over 1,000"


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        ("reproduced", "reproduced", "reproduced"),
        ("reproduced", "direction", "direction, size undecided"),
        ("direction, size undecided", "undecided", "undecided"),
        ("reproduced", "refuted here", "undecided"),
    ],
)
def test_a_verdict_is_what_both_seeds_bear_out(one: str, other: str, said: str) -> None:
    assert agreed(one, other) == agreed(other, one) == said


def test_a_claim_may_be_a_mean_or_divided() -> None:
    values = {"a": [2.0, 1.8, 2.0**2 / 1.8], "b": [8.0, 7.2, 8.0**2 / 7.2], "c": 2.0, "word": "x"}
    mean = Claim(["a", "b"], 4.0, 4.0, exact=False, none=1.0)
    assert ours(mean, values) == pytest.approx((4.0, 3.6, 4.0**2 / 3.6))
    over = Claim(["a"], 1.0, 1.0, exact=False, none=1.0, over="c")
    assert ours(over, values) == pytest.approx((1.0, 0.9, 1 / 0.9))
    both = Claim(["a"], 1.0, 1.0, exact=False, none=1.0, over="b")
    assert ours(both, values) == pytest.approx((0.25, 0.25 * 0.9**2**0.5, 0.25 / 0.9**2**0.5))
    assert ours(Claim(["d"], 1.0, 1.0, exact=False, none=1.0), values) is None
    with pytest.raises(FigureError, match="wants a number"):
        ours(Claim(["word"], 1.0, 1.0, exact=False, none=1.0), values)


def test_claims_say_what_the_paper_says() -> None:
    said = {name: each.paper() for name, each in read_claims(ROOT)[1]["KunServe"].items()}
    assert said["two stages, tokens a second over replicas"] == "-21.8 % to -3.3 %"
    assert MORE.paper() == "at least 1.00" and COUNT.paper() == "7.0"
    at_most = read_claims(ROOT)[1]["Llumnix"]["steps longer, 256 tokens"]
    assert at_most.paper() == "at most 1.00 %"


def test_the_verdicts_of_this_repository_are_of_its_results() -> None:
    now = verdicts(ROOT, read_results(), read_results(folder=SECOND))
    there = {key.removeprefix("claims/"): value for key, value in read_results().items()
             if key.startswith("claims/")}  # fmt: skip
    assert release.flat(now) == there, f"{FILE} or results changed: tools.release run claims"


def test_a_claim_whose_part_has_not_run_says_so_and_one_without_its_figure_is_a_mistake() -> None:
    results = {key: value for key, value in read_results().items() if "migration/" not in key}
    said = verdicts(ROOT, results, {})["Llumnix"]["steps longer, 256 tokens"]
    assert (said["here"], said["verdict"]) == ("not run", "not run")
    with pytest.raises(FigureError, match="not in the release run"):
        verdicts(ROOT, results | {"migration/moves/other": 1.0}, {})


def test_another_seed_ran_parts_that_claims_are_of() -> None:
    there = {file.stem for file in (ROOT / SECOND).glob("*.json")}
    assert there <= release.claimed().keys()


def test_a_part_by_another_seed_runs_in_a_folder_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release, "RUNS", tmp_path)
    assert release.folder_of("made", None) == tmp_path / "made"
    assert release.folder_of("made", 2) == tmp_path / "seed-2/made"
