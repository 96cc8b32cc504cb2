"""Do features of serving go together as the page says, and lose nothing?"""

from __future__ import annotations

import random
from itertools import combinations
from pathlib import Path

import pytest

from tests.policies.serving.features import FEATURES, Audit, audited, outcome, pairs, repeated
from tests.policies.serving.generated import audit as audit_of
from tests.policies.serving.generated import once, serving
from tests.rotation import shared

PAGE = Path(__file__).resolve().parents[3] / "docs" / "combinations.md"
CONSERVATION = "## Conservation"


def said() -> dict[str, str]:
    """What the page says of each pair that does not run, by its names."""
    lines = PAGE.read_text(encoding="utf-8").partition(f"\n{CONSERVATION}\n")[0].splitlines()
    listed = [line for line in lines if line.startswith("- ")]
    return {
        pair: line
        for line in listed
        for pair in line.removeprefix("- ").partition(": `")[0].split("; ")
    }


SAID = said()
EACH_ONCE = {
    *zip(FEATURES, [*FEATURES][-7:] + [*FEATURES][:-7], strict=True),
    ("dropping", "experts placed"), ("vattention", "KV in another memory"),
    ("vattention", "interleaved memories"), ("pools, unlike cards", "dropping"),
    ("closed loop", "pauses"),
    *(("sampled memory", each) for each in (
        "states", "dropping", "experts by heat", "KV by request",
    )),
    ("drafts", "full memory"), *(("drafts", each) for each in ("vattention", "windows", "ideal")),
    *(("swap", each) for each in ("ideal", "vattention")), ("radix", "states"),
    ("full memory", "experts by heat"), ("ideal", "migration"), ("radix", "dropping"),
}  # fmt: skip
"""Each feature with one or two others, those that stand seven places from it; what was refused
until it was tried; and pairs that run what hardly another test does."""
TRIPLES = [
    ("prefixes", "tier", "TP2", "session"), ("prefixes", "drive", "TP2", "kv_aware"),
    ("pools", "drafts", "tier"), ("states", "tier"), ("windows", "tier", "TP2"),
    ("pools", "least_requests", "prefixes"), ("pools, decode TP2", "prefixes", "drive"),
    ("engine sglang", "sessions", "tier", "least_requests"),
    ("odma", "pools", "sessions"), ("s3", "tier", "faults"), ("stages", "TP2", "sessions"),
    ("KV of oaken", "tier", "prefixes"), ("states", "pools", "drafts"),
    ("windows", "pools", "drive"),
    *(("faults", each, more) for each in ("dropping", "lending", "migration") for more in (
        "tier", "states", "windows", "stages", "async scheduling",
    )),
]  # fmt: skip
"""What deployments combine."""


def triples(many: int, seed: int) -> list[tuple[str, ...]]:
    """So many drawn from those of three kinds of which every two run."""
    runs = {pair for pair in pairs() if " + ".join(pair) not in SAID}
    every = [
        three for three in combinations(FEATURES, 3)
        if all(pair in runs for pair in combinations(three, 2))
    ]  # fmt: skip
    return random.Random(seed).sample(every, many)


@pytest.mark.parametrize("names", FEATURES)
def test_each_feature_leaves_its_trace_alone(names: str) -> None:
    assert outcome((names,)).how == "runs"


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(pair, marks=() if {pair, pair[::-1]} & EACH_ONCE else pytest.mark.long)
        for pair in pairs()
    ],
    ids=" + ".join,
)
def test_a_pair_does_what_the_page_says(names: tuple[str, str]) -> None:
    found = outcome(names)
    assert found.how != "fails", found.why
    line = SAID.get(" + ".join(names), "")
    assert bool(line) == (found.how != "runs"), found
    if found.how in ("refused", "unused"):
        assert found.why in line


@pytest.mark.parametrize("names", TRIPLES, ids=" + ".join)
def test_what_deployments_combine_runs(names: tuple[str, ...]) -> None:
    found = outcome(names)
    assert found.how == "runs", found.why


@pytest.mark.parametrize(
    "names",
    [
        ("ideal", "least_kv", "full memory"),
        ("faults", "drive", "pools"),
        ("swap", "lending"),
        ("ideal", "sessions", "migration"),
    ],
    ids=" + ".join,
)
def test_what_once_lost_something_loses_nothing(names: tuple[str, ...]) -> None:
    assert audited(names)[1].breaches == []


@pytest.mark.parametrize("names", shared(triples(500, 1), every=100), ids=" + ".join)
def test_a_triple_loses_nothing(names: tuple[str, ...]) -> None:
    audit = repeated(names)
    assert isinstance(audit, str) or audit.breaches == []


@pytest.mark.parametrize("number", shared(range(450), every=40))
def test_a_generated_serving_loses_nothing(number: int) -> None:
    """Of 450 some 300 are served, the others refused."""
    audit = audit_of(serving(1, number))
    assert isinstance(audit, str) or audit.breaches == []


def test_a_serving_whose_cards_dropped_and_restored_at_every_look_ends() -> None:
    """KV was on its way to a group as it was taken apart, and the line on the link grew."""
    audit = once(serving(1, 315))
    assert isinstance(audit, Audit) and audit.breaches == []
