"""What of the difference between two devices is software?"""

from __future__ import annotations

import pytest

from sweeps.plan.software import called, software_of
from sweeps.plan.sweep import load_sweep
from sweeps.plan.sweep_spec import Sweep

SWEEP = ["axes.device=[mlu370-x4, strix-halo]", "model=qwen3-0.6b", "requests=10", "variants={}"]


def sweep(*more: str) -> Sweep:
    return load_sweep("quickstart", [*SWEEP, *more])


def test_each_device_is_put_under_the_class_of_the_other() -> None:
    found = sweep().spec.recorded(sweep().points)["software"]
    assert [(each["device"], each["class"]) for each in found] == [
        ("mlu370-x4", "accelerator"), ("strix-halo", "amd-rdna"),
    ]  # fmt: skip
    under_one = sweep("device_set.kernels={class: accelerator}")
    (steps,) = {len(each["by_class"]) for each in found}
    assert steps == 2
    # a second way to the same figure: the card as if its file said so
    points = {p.overrides["device"]: p.experiment for p in under_one.points}
    other = points["mlu370-x4"].model_copy(update={"device_set": {"kernels": {"class": "ideal"}}})
    again = software_of([("strix", points["strix-halo"]), ("ideal", other)])
    assert again[0]["by_class"]["accelerator"] == found[1]["by_class"]["accelerator"]
    for each in again:
        rates = each["by_class"]
        for key in rates["ideal"]:
            assert rates["ideal"][key] >= rates["accelerator"][key]


@pytest.mark.parametrize("more", ["axes.device=[mlu370-x4, spyre]",
                                  "device_set.kernels={class: nvidia-hbm}"])  # fmt: skip
def test_devices_of_one_class_have_nothing_to_say(more: str) -> None:
    made = sweep(more)
    assert "software" not in made.spec.recorded(made.points)
    assert called({}, made.points[0].experiment) == "mlu370-x4"
