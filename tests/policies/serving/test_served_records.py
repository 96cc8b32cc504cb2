"""Does a serving with one, two or three features, or a generated one, give what it gave?

All are served in `make test`, and held against `served.json` (`tests.policies.records`).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from hwmodel.description.description import DescriptionError
from sweeps.run.sweep_run import apart as without_walls
from tests.policies.checksum import checksum
from tests.policies.records import Records
from tests.policies.serving.features import FEATURES, Setting, audited, pairs, reason
from tests.policies.serving.generated import serving
from tests.policies.serving.test_pairs import EACH_ONCE, TRIPLES

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


RECORDS = Records(Path(__file__).with_name("served.json"), SERVED, record)


@pytest.mark.parametrize("name", SERVED)
def test_it_gives_what_it_gave(name: str) -> None:
    RECORDS.check(name)


if __name__ == "__main__":
    RECORDS.write()
