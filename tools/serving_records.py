"""Records of servings with each feature, with pairs and triples of them, and of generated ones.

python -m tools.serving_records     # write the records anew, and say which have moved
"""

from __future__ import annotations

import json

from tests.policies.serving.features import FEATURES, Audit, outcome, pairs
from tests.policies.serving.generated import once, serving
from tests.policies.serving.test_pairs import EACH_ONCE, RECORDED, RECORDS, TRIPLES

GENERATED = range(0, 450, 30)
"""Numbers of those of seed 1 that `make test` serves."""


def main() -> None:
    """Serve all, and write what they say."""
    found = {}
    several = [pair for pair in pairs() if {pair, pair[::-1]} & EACH_ONCE]
    for names in [*((each,) for each in FEATURES), *several, *TRIPLES]:
        if (served := outcome(names)).how == "runs":
            found[" + ".join(names)] = served.record
    for number in GENERATED:
        if isinstance(audit := once(serving(1, number)), Audit):
            found[str(number)] = audit.record
    for name, record in found.items():
        if (before := RECORDED.get(name, record)) != record:
            print(f"{name}: {before} -> {record}")
    RECORDS.write_text(json.dumps(found, indent=0) + "\n")


if __name__ == "__main__":
    main()
