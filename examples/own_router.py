"""Are two choices enough? Adds a router that draws two cards and takes the one with fewer requests
(Mitzenmacher 2001, IEEE TPDS 12(10): the longest line falls from about log n / log log n to
log log n). Prints the p99 of the first token's time beside cards in turn and the fewest requests.

    python examples/own_router.py [PATH=VALUE ...]
    bankwise run cluster --plugin examples/own_router.py \\
        --set 'axes.serving.cluster.placement=[round_robin, two_choices, least_requests]'
"""

import sys

import numpy as np

import bankwise
from policies.requests.requests import FloatArray, IntArray
from policies.routers.router import Router, RouterOptions


class TwoChoices(Router):
    name = "two_choices"

    def __init__(self, spec: RouterOptions) -> None:
        super().__init__(spec)
        self.draws = np.random.default_rng(1)  # the same in each run, so that runs compare

    def choose(self, request: int, count: IntArray, tokens: FloatArray) -> int:
        one, other = self.draws.integers(len(count), size=2)
        return int(one if count[one] <= count[other] else other)


if __name__ == "__main__":
    bankwise.plugin(__file__)
    for name in ("round_robin", TwoChoices.name, "least_requests"):
        sets = [
            "policy=paged",
            f"serving.cluster.placement={name}",
            "base.serving.cluster.cards=16",
        ]
        sets += ["load={rate_per_s: 12}", *sys.argv[1:]]
        found = bankwise.simulate("cluster", set=sets)["metrics"]
        tpot, most = found["tpot_s"]["p99"], found["node"]["imbalance"]
        print(f"{name}: p99 TPOT {1e3 * tpot:.0f} ms, fullest card {100 * most:.0f}% over the mean")
