"""Cases of a sweep: a device with what it holds, crossed with the axes, compared side by side."""

from itertools import combinations
from pathlib import Path
from typing import Any

from sweeps.report.labels import label, shared, sides
from sweeps.run.store import RunDirectory
from tests.sweeps.made import PROVENANCE, metrics

TINY: dict[str, Any] = {
    "kind": "sweep", "name": "tiny", "summary": "two cards",
    "base": {
        "workload": "constant", "requests": 30, "replications": 2,
        "arrivals": {"process": "all_at_once"},
        "serving": {"memory": {"fidelity": "analytic", "efficiency": 0.8}},
    },
    "axes": {"serving.policy": ["static", "paged"]},
    "compare": "serving.policy",
    "variants": {
        "small": {"role": "case", "set": {
            "device": "wormhole-n300", "model": "llama-2-7b", "serving.weights": "w4a16",
        }},
        "large": {"role": "case", "set": {"device": "b200", "model": "llama-2-7b"}},
        "slow": {"role": "control", "set": {"serving.memory.efficiency": 0.1}},
        "oracle": {"role": "reference", "set": {"serving.policy": "oracle"}},
    },
}  # fmt: skip


def test_names_touch_neither_one_another_nor_a_point() -> None:
    """As many near one another as the library has; one at the right edge stands to the left."""
    points = [(192, 160, "l4"), (206, 160, "mlu370-x4"), (950, 160, "m3-ultra"),
              (430, 112, "a100-80gb, h100-pcie"), (460, 118, "rtx-pro-6000")]  # fmt: skip
    chosen = sides(points, 960)
    assert [side.align for side in chosen[1:3]] == ["left", "right"]
    boxes = [label(*point, side) for point, side in zip(points, chosen, strict=True)]
    assert not any(shared(one, other) for one, other in combinations(boxes, 2))
    assert not any(shared(box, (x, y, 0.5, 0.5)) for box in boxes for x, y, _ in points)


def cases(path: Path) -> None:
    """Of two cases each has a winner of its own, and a control of the small one another."""
    run = RunDirectory(path)
    hardware = {
        "small": {"device": "wormhole-n300", "capacity_bytes": 24 << 30, "peak_gbps": 576.0},
        "large": {"device": "b200", "capacity_bytes": 180 << 30, "peak_gbps": 8000.0},
    }
    config = {**TINY, "base": {**TINY["base"], "replications": 3}}
    run.create(config, {**PROVENANCE, "hardware": hardware}, {})
    rates = {("small", "static", ""): 100, ("small", "paged", ""): 150,
             ("large", "static", ""): 120, ("large", "paged", ""): 100,
             ("small", "static", "slow"): 90, ("small", "paged", "slow"): 50,
             ("small", "oracle", "reference"): 170}  # fmt: skip
    for point, ((case, policy, control), rate) in enumerate(rates.items()):
        for replication in (1, 2, 3):
            run.append(
                {"point": point, "control": control, "replication": replication,
                 "rate_per_s": None, "overrides": {"case": case, "serving.policy": policy},
                 "metrics": metrics(rate * (1 + replication / 100))}
            )  # fmt: skip
    run.release()
