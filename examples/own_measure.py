"""How many token slots does a card have beside its weights? Adds a measure of sweeps, which
simulates nothing. Prints the slots of two cards.

    python examples/own_measure.py
    bankwise run slots.yaml --plugin examples/own_measure.py     # docs/extend.md has slots.yaml
"""

from typing import Any, ClassVar

import bankwise
from policies.allocators.kv_layout import kv_layout
from sweeps.analyse.objective import Objective
from sweeps.plan.experiment import Described, Task, device_of, model_of


class KvSlots(Described):
    name: ClassVar[str] = "kv_slots"
    objective: ClassVar[Objective | None] = Objective(
        "slots", "Token slots", "tokens", "has {} token slots", digits=0
    )

    gpu_memory_utilization: float = 0.9

    def measure(self, task: Task) -> dict[str, Any]:
        spec = task.experiment
        layout = kv_layout(device_of(spec), model_of(spec), spec.gpu_memory_utilization)
        return {"slots": float(layout.slots)}


SLOTS = {
    "kind": "sweep",
    "name": "slots",
    "summary": "token slots of two cards",
    "measure": KvSlots.name,
    "base": {"model": "llama-3.1-8b", "replications": 1},
    "axes": {"device": ["l4", "a100-80gb"]},
    "compare": "device",
}

if __name__ == "__main__":
    bankwise.plugin(__file__)
    for point, name in enumerate(("l4", "a100-80gb")):
        found = bankwise.simulate(SLOTS, point)
        print(f"{name}: {found['metrics']['slots']:,.0f} token slots")
