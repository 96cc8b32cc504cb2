"""Records of how KV moves in a hundred small servings, which tests keep to.

    python -m tools.transfer_records              # write the records anew
    python -m tools.transfer_records --draw       # of other servings
    python -m tools.transfer_records --overlaps   # what overlaps under load

The last prints how many pairs overlap at one card, under load, on one link or on several
(`tests/reference/README.md` says what has moved since ways share their links).
"""

from __future__ import annotations

import argparse
import json
from collections import Counter

from pydantic import ValidationError

from hwmodel.description.description import DescriptionError
from tests.policies.serving.features import FEATURES, Setting, patience, stream
from tests.policies.transfers.test_transfer_records import (
    MODELS,
    RECORDS,
    TOLD,
    Run,
    moves_alone,
    record,
    served,
)
from tests.policies.transfers.transfer_observer import NETWORK, Moved, Pair, overlapping
from tools.transfer_servings import SHAPE, WAYS, named


def drawn(way: str, many: int) -> list[str]:
    """The names of the first so many of a way that move alone; in every third, where that can be, a
    card fails in the middle of the longest transfer."""
    names: list[str] = []
    for number in range(10_000):
        if len(names) == many:
            break
        name = f"{way} {number}"
        if (run := _tried(name)) is None:
            continue
        if len(names) % 3 == 1:
            longest = max((e for e in run.moved if e.way == way), key=_lasts_s)
            at_s = (longest.begin_s + longest.gone_s) / 2
            card = sorted(longest.cards)[0].split()[-1]
            failing = f"{name} fails {card} {at_s:.9g}"
            lost = _tried(failing)
            if lost is not None and any(each.end_s is None for each in lost.moved):
                name = failing
        names.append(name)
    return names


def _lasts_s(each: Moved) -> float:
    return each.gone_s - each.begin_s


def _tried(name: str) -> Run | None:
    """The run of a name, where it can be served, and moves alone."""
    try:
        with patience():
            run = served(named(name))
    except (DescriptionError, ValidationError, TimeoutError):
        return None
    return run if not run.breaches and moves_alone(name.split()[0], run) else None


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
        for features in LOADED:
            assert set(features) <= set(FEATURES)
            print(overlaps(features), flush=True)
        return
    names = [*TOLD]
    if options.draw:
        names = [name for way, many in WAYS.items() for name in drawn(way, many)]
    rows = [f"{json.dumps(name)}: {_row(named(name))}" for name in names]
    RECORDS.write_text("{\n" + ",\n".join(rows) + "\n}\n")


def _row(setting: Setting) -> str:
    """What is served, and what becomes of it, in a line."""
    requests, model = setting.requests, setting.model
    columns = ["arrival_s", "prompt_tokens", "output_tokens"]
    if (requests.session >= 0).any():
        columns += ["session", "think_s"]
    told = {
        "requests": {
            name: [None if each != each else each for each in getattr(requests, name).tolist()]
            for name in columns
        },
        "device": setting.device,
        "model": next(n for n, own in MODELS.items() if SHAPE.model_copy(update=own) == model),
        "tokens": setting.tokens, "changes": setting.changes, "seed": setting.seed,
    }  # fmt: skip
    return json.dumps({"serving": told, **record(served(setting))}, separators=(",", ":"))


if __name__ == "__main__":
    main()
