"""Does a serving with one, two or three features, or a generated one, give what it gave?

All are served in `make test`. A change that is meant to move them writes `served.json` anew, and
prints what has moved:

    python -m tests.policies.serving.test_served_records
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from hwmodel.description.description import DescriptionError
from sweeps.run.sweep_run import apart as without_walls
from tests.policies.checksum import checksum
from tests.policies.serving.features import FEATURES, Setting, audited, pairs, reason
from tests.policies.serving.generated import serving
from tests.policies.serving.test_pairs import EACH_ONCE, TRIPLES

RECORDS = Path(__file__).with_name("served.json")
TOGETHER = [
    *((name,) for name in FEATURES),
    *(pair for pair in pairs() if {pair, pair[::-1]} & EACH_ONCE),
    *TRIPLES,
]
SERVED: dict[str, tuple[tuple[str, ...], Setting | None]] = {
    " + ".join(names): (names, None) for names in TOGETHER
} | {f"generated {number}": serving(1, number) for number in range(0, 450, 30)}


def record(name: str) -> str:
    """Steps and seconds of the serving of that name, and a checksum of all that it says; or why its
    features do not go together."""
    try:
        found, audit = audited(*SERVED[name])
    except (DescriptionError, ValidationError) as error:
        return reason(error)
    assert audit.breaches == []
    metrics, _ = without_walls(found.metrics)
    ends = found.finish_s[np.isfinite(found.finish_s)].max(initial=0.0)
    return f"{metrics['steps']} steps, {ends:.6g} s, {checksum([found.finish_s, metrics])}"


def read() -> dict[str, str]:
    return json.loads(RECORDS.read_text(encoding="utf-8"))


def test_every_serving_has_its_record() -> None:
    assert read().keys() == SERVED.keys()


@pytest.mark.parametrize("name", SERVED)
def test_it_gives_what_it_gave(name: str) -> None:
    assert record(name) == read()[name]


if __name__ == "__main__":
    before, now = read(), {name: record(name) for name in SERVED}
    for name, said in now.items():
        if before.get(name) != said:
            print(f"{name}: {before.get(name)} -> {said}")
    RECORDS.write_text(json.dumps(now, indent=0, ensure_ascii=False) + "\n", encoding="utf-8")
