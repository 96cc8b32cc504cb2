"""Small servings drawn at random: does each lose nothing, and is it the same twice, and on one
replica to the digit where steps are advanced one by one (`tests/policies/serving/generated.py`)?
Is each figure that of the compiled core (`tests/policies/serving/plain_pairs.py`)?

    python -m tools.random_runs servings --count 300 --seed 1
    python -m tools.random_runs servings --count 1000 --faults
    python -m tools.random_runs plain --count 2000 --seed 1

the second of which serves each once, with replicas and hosts that fail again and again. Prints each
that does not hold, with its number, then how many were served, how many refused, and why not.
"""

from __future__ import annotations

import argparse
from collections import Counter

from tests.policies.serving import generated, plain_pairs
from tests.policies.serving.features import Audit


def servings(asked: argparse.Namespace) -> None:
    """Serve so many, and print what is wrong."""
    refused: Counter[str] = Counter()
    transfers = breaches = 0
    for number in range(asked.count):
        drawn = generated.serving(asked.seed, number, asked.faults)
        found = (generated.once if asked.faults else generated.audit)(drawn)
        if isinstance(found, Audit):
            transfers += found.transfers
            breaches += bool(found.breaches)
            for breach in found.breaches[:1]:
                print(f"{number}: {' + '.join(drawn.names)}: {breach}", flush=True)
        else:
            refused[found] += 1
    served = asked.count - refused.total()
    times = "once" if asked.faults else "twice"
    print(f"{served} of {asked.count} served {times}, {transfers} transfers, {breaches} breaches")
    for why, many in refused.most_common():
        print(f"refused, {many}: {why}")


def plain(asked: argparse.Namespace) -> None:
    """Serve so many both ways, and print what differs."""
    found = plain_pairs.pairs(range(asked.count), asked.seed)
    for number, where in found.differ.items():
        print(f"{number} differs: {'; '.join(where[:3])[:300]}")
    general = {why: many for why, many in found.why.items() if why}
    print(f"{asked.count} runs: {found.why['']} plain, {found.refused} refused; general: {general}")
    print(f"of the plain ones met: {dict(found.met)}")
    print(f"{len(found.differ)} differ")


def main() -> None:
    parser = argparse.ArgumentParser(description="Serve many small runs drawn at random.")
    kinds = parser.add_subparsers(required=True)
    for run, count in ((servings, 300), (plain, 200)):
        kind = kinds.add_parser(run.__name__, help=run.__doc__)
        kind.set_defaults(run=run)
        kind.add_argument("--count", type=int, default=count)
        kind.add_argument("--seed", type=int, default=1)
        if run is servings:
            kind.add_argument("--faults", action="store_true", help="faults that return, once each")
    asked = parser.parse_args()
    asked.run(asked)


if __name__ == "__main__":
    main()
