"""Does it help to move requests that wait for KV to a card that has room? Adds a controller that
looks at all cards now and then, and moves the first in line of one that is full to the card with
the most free slots. Prints the mean time of a first token without and with it, and the moves.

    python examples/own_controller.py [PATH=VALUE ...]
    bankwise run cluster --plugin examples/own_controller.py \\
        --set 'base.serving.cluster={cards: 4, controllers: {relief: {every_s: 0.1}}}'
"""

import sys
from typing import Any

import bankwise
from policies.serving.moving_options import ControllerOptions, Seconds
from policies.serving.node_controller import Controller, Premises


class ReliefOptions(ControllerOptions):
    every_s: Seconds = 0.05


class Relief(Controller):
    name, Options = "relief", ReliefOptions

    def __init__(self, options: ReliefOptions, premises: Premises) -> None:
        super().__init__(options, premises)
        self.moved = 0

    def decide(self, at_s: float) -> None:
        replicas = {card: self.replica(card) for card in self.node.manager.cards.tolist()}
        free = {card: each.engine.allocator.free_slots for card, each in replicas.items()}
        for card, replica in replicas.items():
            for request in replica.waiting:
                needed, best = replica.engine.total(request), max(free, key=free.__getitem__)
                if needed <= free[card] or needed > free[best] or replicas[best].waiting:
                    break
                self.requeue(request, best, at_s)
                free[best] -= needed
                self.moved += 1

    def report(self) -> dict[str, Any]:
        return {"moved": self.moved}


if __name__ == "__main__":
    bankwise.plugin(__file__)
    sets = ["policy=paged", "serving.cluster.placement=round_robin", "load={rate_per_s: 3}"]
    sets.append("base.serving.kv_tokens=40000")
    for name, chosen in {"alone": "{}", "with it": f"{{{Relief.name}: {{}}}}"}.items():
        own = [*sets, f"base.serving.cluster.controllers={chosen}", *sys.argv[1:]]
        found = bankwise.simulate("cluster", set=own)["metrics"]
        moved = found["node"].get(Relief.name, {"moved": 0})["moved"]
        print(f"{name}: mean TTFT {found['ttft_s']['mean']:.2f} s, {moved} requests moved")
