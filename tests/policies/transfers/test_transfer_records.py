"""Does KV move when, and by as many bytes, as it did, where no two transfers overlap?

A hundred small servings (`transfer_servings`) of the ways in which KV moves. In none do two
transfers overlap anywhere, so that they take what they take whether or not ways share their links:
a redesign of how KV moves keeps each of these times to 1e-9, and every byte. Of a transfer that is
lost it is not recorded how long it took; of attention on lenders, which shares their links and is
no KV, sums alone.

    python -m tests.policies.transfers.test_transfer_records              # write the records anew
    python -m tests.policies.transfers.test_transfer_records --draw       # of other servings
    python -m tests.policies.transfers.test_transfer_records --overlaps   # what overlaps under load

The last prints how many pairs overlap at one card, under load, on one link or on several
(`tests/reference/README.md` says what has moved since ways share their links).
"""

from __future__ import annotations

import argparse
import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.policies.serving.features import FEATURES, Setting, figure, stream
from tests.policies.transfers.transfer_observer import NETWORK, Moved, Pair, overlapping
from tests.policies.transfers.transfer_servings import (
    WAYS,
    Run,
    drawn,
    moves_alone,
    run_named,
    served,
)
from tests.rotation import shared

RECORDS = Path(__file__).parent / "transfer_records.json"
NAMES: list[str] = list(json.loads(RECORDS.read_text())) if RECORDS.exists() else []
CLOSE = 1e-9
NO_KV = ("attention", "weights")
"""What goes over the same links and is no KV."""


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


@pytest.mark.parametrize("name", shared(NAMES, every=4))
def test_does_kv_move_when_and_as_it_did(name: str) -> None:
    run, then = run_named(name), json.loads(RECORDS.read_text())[name]
    assert not run.breaches
    assert moves_alone(name.split()[0], run)
    found = record(run)
    for key in found.keys() | then.keys():
        assert same(found.get(key), then.get(key)), (key, found.get(key), then.get(key))


def test_are_there_a_hundred_servings_and_ten_at_least_of_each_way() -> None:
    records = json.loads(RECORDS.read_text()).values()
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
    plain = [n for n in NAMES if n.startswith("lending" if way == "attention" else way)]
    seen = counted = 0.0
    for name in [each for each in plain if "fails" not in each][:2]:
        run = run_named(name)
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


# under load

LOADED: tuple[tuple[str, ...], ...] = (
    ("pools",), ("tier",), ("drive",), ("hcache",), ("pauses",), ("swap",), ("migration",),
    ("dropping",), ("lending",), ("pools", "tier"), ("pools", "migration"), ("pools", "dropping"),
    ("pools", "lending"), ("tier", "migration"), ("tier", "dropping"), ("tier", "lending"),
    ("tier", "swap"), ("pauses", "migration"), ("swap", "migration"), ("swap", "lending"),
    ("hcache", "migration"), ("drive", "dropping"),
)  # fmt: skip


def overlaps(names: tuple[str, ...]) -> str:
    """A row of the table: transfers; pairs that overlap at one card or its host; of those of which
    no link knows, the pairs on its network, and the most frequent."""
    setting = Setting(stream())
    run = served(setting, names)
    pairs = [each for each in overlapping(run.moved) if each.meet]
    apart = [each for each in pairs if not _known(each)]
    network = [each for each in apart if each.one.takes == each.other.takes == NETWORK]
    kinds = Counter(" + ".join(sorted((each.one.way, each.other.way))) for each in apart)
    most = ", ".join(f"{kind} {many}" for kind, many in kinds.most_common(3))
    counts = len(run.moved), len(pairs) - len(apart), len(apart), len(network)
    return "| " + " | ".join([" + ".join(names), *map(str, counts), most or "none"]) + " |"


def _known(pair: Pair) -> bool:
    """Whether one link carries both, and so knows of both."""
    return pair.one.clock == pair.other.clock


def main() -> None:
    parser = argparse.ArgumentParser(description="Record how KV moves in the hundred servings.")
    parser.add_argument("--draw", action="store_true", help="choose the servings anew")
    parser.add_argument("--overlaps", action="store_true", help="print what overlaps under load")
    options = parser.parse_args()
    if options.overlaps:
        print("| features | transfers | seen | unseen | of these, one network | which |")
        print("|---|---:|---:|---:|---:|---|")
        for names in LOADED:
            assert set(names) <= set(FEATURES)
            print(overlaps(names), flush=True)
        return
    names = NAMES
    if options.draw:
        names = [name for way, many in WAYS.items() for name in drawn(way, many)]
    rows = [f"{json.dumps(name)}: {_compact(record(run_named(name)))}" for name in names]
    RECORDS.write_text("{\n" + ",\n".join(rows) + "\n}\n")


def _compact(found: dict[str, Any]) -> str:
    return json.dumps(found, separators=(",", ":"))


if __name__ == "__main__":
    main()
