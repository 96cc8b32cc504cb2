"""Does KV move when, and by as many bytes, as it did, where no two transfers overlap?

A hundred small servings of the ways in which KV moves. In none do two
transfers overlap anywhere, so that they take what they take whether or not ways share their links:
a redesign of how KV moves keeps each of these times to 1e-9, and every byte. Of a transfer that is
lost it is not recorded how long it took; of attention on lenders, which shares their links and is
no KV, sums alone. `tools/transfer_records.py` writes the records.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from bankwise.conservation import Auditor
from policies.requests.requests import Requests
from policies.serving.serving import ServingResult
from tests.policies.serving.features import HYBRID, TWO_WINDOWS, WINDOWS, Setting, figure, run_of
from tests.policies.serving.generated import LATENT
from tests.policies.serving.test_moving import SHAPE
from tests.policies.transfers.transfer_observer import Moved, observed, overlapping
from tests.rotation import shared

RECORDS = Path(__file__).parent / "transfer_records.json"
TOLD: dict[str, Any] = json.loads(RECORDS.read_text())
WAYS = ("pools", "tiers", "swap", "migration", "dropping", "lending", "hcache", "pauses")
MODELS: dict[str, dict[str, Any]] = {
    "": {}, "windows": WINDOWS, "windows of two lengths": TWO_WINDOWS, "states": HYBRID,
    "latents": {"latent": LATENT, "kv_heads": 1},
}  # fmt: skip
CLOSE = 1e-9


class Run(NamedTuple):
    """A run and all that moved in it."""

    result: ServingResult
    moved: list[Moved]
    breaches: list[str]


def served(setting: Setting, names: tuple[str, ...] = ()) -> Run:
    """Serve it, to the end of all that is under way. Raises as `run_of`."""
    auditor = Auditor()
    with observed() as seen:
        result = run_of(names, [auditor], setting)
        breaches = list(auditor.breaches())
    return Run(result, seen.moved(), breaches)


def recorded(name: str) -> Run:
    """The run of a record."""
    told = dict(TOLD[name]["serving"])
    columns = {key: np.array(each) for key, each in told["requests"].items()}
    if "think_s" in columns:
        columns["think_s"] = columns["think_s"].astype(float)  # none: of who begins
    model = SHAPE.model_copy(update=MODELS[told["model"]])
    return served(Setting(**{**told, "requests": Requests(**columns), "model": model}))


def moves_alone(way: str, run: Run) -> bool:
    """Whether KV moved this way, and no two transfers of the run overlap anywhere."""
    ended = any(each.way == way and each.end_s is not None for each in run.moved)
    return ended and len(run.moved) <= 200 and next(overlapping(run.moved), None) is None


def rounded(value: float) -> float | None:
    """To twelve digits; None: it never came."""
    return float(f"{value:.12g}") if math.isfinite(value) else None


def record(run: Run) -> dict[str, Any]:
    """Each transfer as [way, ends, bytes, begin, seconds], bytes by way, times of each request."""
    size: Counter[str] = Counter()
    for each in run.moved:
        size[each.way] += each.bytes
    asks = [each for each in run.moved if each.way == "attention"]
    metrics = run.result.metrics
    found: dict[str, Any] = {
        "transfers": [_row(each) for each in run.moved if each.way != "attention"],
        "bytes": dict(sorted(size.items())),
        "first_s": [rounded(each) for each in run.result.first_token_s.tolist()],
        "finish_s": [rounded(each) for each in run.result.finish_s.tolist()],
        "makespan_s": rounded(metrics["makespan_s"]),
        "preemptions": metrics["preemptions"],
    }
    if asks:
        spans_s = sum(each.gone_s - each.begin_s for each in asks)
        found["attention"] = [len(asks), rounded(asks[0].begin_s), rounded(spans_s)]
    return found


def _row(each: Moved) -> list[Any]:
    seconds = None if each.end_s is None else rounded(each.end_s - each.begin_s)
    return [each.way, " > ".join(each.ends), each.bytes, rounded(each.begin_s), seconds]


def same(one: Any, other: Any) -> bool:
    """Whether records agree: times to 1e-9, or what is rounding beside a run; all else wholly."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=CLOSE, abs_tol=1e-14)
    return bool(one == other)


@pytest.mark.parametrize("name", shared(TOLD, every=4))
def test_does_kv_move_when_and_as_it_did(name: str) -> None:
    run, then = recorded(name), {k: v for k, v in TOLD[name].items() if k != "serving"}
    assert not run.breaches
    assert moves_alone(name.split()[0], run)
    found = record(run)
    for key in found.keys() | then.keys():
        assert same(found.get(key), then.get(key)), (key, found.get(key), then.get(key))


def test_are_there_a_hundred_servings_and_ten_at_least_of_each_way() -> None:
    records = TOLD.values()
    of = Counter(way for each in records for way in {row[0] for row in each["transfers"]})
    assert len(records) == 100
    assert {way: of[way] >= 10 for way in WAYS} == dict.fromkeys(WAYS, True)
    lost = sum(row[4] is None for each in records for row in each["transfers"])
    assert lost >= 10  # with cards that fail


COUNTED: dict[str, tuple[str, ...]] = {
    "pools": ("pools transfers count",),
    "tiers": ("tiers load transfers", "tiers store transfers", "tiers read transfers",
              "tiers write transfers"),
    "migration": ("node migration bytes",),
    "dropping": ("node dropping exchanged_bytes",),
    "attention": ("node lending query_bytes", "node lending partial_bytes"),
}  # fmt: skip
"""What a run counts itself of a way: transfers, or bytes."""


@pytest.mark.parametrize("way", COUNTED)
def test_is_all_seen_that_a_run_counts(way: str) -> None:
    plain = [n for n in TOLD if n.startswith("lending" if way == "attention" else way)]
    seen = counted = 0.0
    for name in [each for each in plain if "fails" not in each][:2]:
        run = recorded(name)
        own = [each for each in run.moved if each.way == way]
        seen += len(own) if "bytes" not in COUNTED[way][0] else sum(each.bytes for each in own)
        counted += sum(figure(*key.split())(run.result.metrics) for key in COUNTED[way])
    assert seen == counted > 0


def test_do_a_store_and_a_load_of_one_host_count_as_overlapping() -> None:
    store = Moved("tiers", 1, "host", ("0", "host 0"), 8, 0.0, 2.0, 2.0)
    after = Moved("tiers", 1, "host", ("host 0", "0"), 8, 2.0, 3.0, 3.0)
    beside = Moved("swap", 2, "host", ("0", "host 0"), 8, 1.0, 2.5, 2.5)
    assert not list(overlapping([store, after]))
    assert [pair.meet for pair in overlapping([after, store, beside])] == [{"0"}, {"0"}]
