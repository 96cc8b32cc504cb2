"""Draw questions, and ask each in a second way.

    python -m tests.answers --count 500 --seed 2
    python -m tests.answers --only "more cards" --count 50

Prints what does not hold, with its number, then how many of each relation held, broke, or were not
asked since what was drawn does not go together.
"""

from __future__ import annotations

import argparse
from collections import Counter

from tests.answers.asked import Asked, asked
from tests.answers.relations import RELATIONS


def main() -> None:
    """Draw so many, and print what is wrong."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=list(RELATIONS), help="of one relation")
    given = parser.parse_args()
    held: Counter[str] = Counter()
    why: Counter[str] = Counter()
    broken = 0
    for number in range(given.count):
        found: Asked = asked(given.seed, number, given.only)
        held[found.relation] += found.refused is None and not found.breaches
        if found.refused is not None:
            why[f"{found.relation}: {found.refused}"] += 1
        broken += bool(found.breaches)
        for breach in found.breaches[:1]:
            print(f"{number}: {found.relation}: {breach}; {found.draw}", flush=True)
    refused = why.total()
    print(f"{given.count} drawn: {held.total()} held, {broken} broke, {refused} were not asked")
    print(f"{sum(many > 0 for many in held.values())} of {len(RELATIONS)} relations held")
    for name, many in why.most_common():
        print(f"not asked, {many}: {name}")


if __name__ == "__main__":
    main()
