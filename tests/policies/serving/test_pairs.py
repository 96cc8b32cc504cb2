"""Do features of serving go together as the page says?"""

from __future__ import annotations

import pytest

from policies.serving.serving import ServingResult
from tests.policies.serving.features import FEATURES, PAGE, outcome, pairs, run_of
from tests.rotation import shared

SAID = {
    pair: line
    for line in PAGE.read_text(encoding="utf-8").splitlines()
    for pair in line.removeprefix("- ").partition(": `")[0].split("; ")
}
"""Pair -> what the page says of it."""
TRIPLES = [
    ("prefixes", "tier", "TP2", "sticky"), ("prefixes", "drive", "TP2", "kv_aware"),
    ("pools", "drafts", "tier"), ("states", "tier"), ("windows", "tier", "TP2"),
    ("pools", "least_requests", "prefixes"), ("pools, decode TP2", "prefixes", "drive"),
    ("engine sglang", "sessions", "tier", "least_requests"),
    ("odma", "pools", "sessions"), ("s3", "tier", "faults"), ("stages", "TP2", "sessions"),
    ("KV of oaken", "tier", "prefixes"), ("states", "pools", "drafts"),
    ("windows", "pools", "drive"),
]  # fmt: skip
"""What deployments combine."""


@pytest.mark.parametrize("names", FEATURES)
def test_each_feature_leaves_its_trace_alone(names: str) -> None:
    assert outcome((names,)).how == "runs"


@pytest.mark.parametrize("names", shared(pairs(), every=12), ids=" + ".join)
def test_a_pair_does_what_the_page_says(names: tuple[str, str]) -> None:
    found = outcome(names)
    assert found.how != "fails", found.why
    line = SAID.get(" + ".join(names), "")
    assert bool(line) == (found.how != "runs"), found
    if found.how in ("refused", "not modelled"):
        assert found.why in line


@pytest.mark.parametrize("names", TRIPLES, ids=" + ".join)
def test_what_deployments_combine_runs(names: tuple[str, ...]) -> None:
    found = outcome(names)
    assert found.how == "runs", found.why


@pytest.mark.parametrize("names", TRIPLES[::5], ids=" + ".join)
def test_a_seed_gives_the_same_run(names: tuple[str, ...]) -> None:
    first, again = (run_of(names) for _ in range(2))
    assert isinstance(first, ServingResult)
    assert (first.finish_s == again.finish_s).all()
