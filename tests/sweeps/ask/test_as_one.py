"""Do questions of capacity and bandwidth count all memories of a device?"""

from __future__ import annotations

import pytest

from hwmodel.specs.device import Device, load_device
from hwmodel.specs.transformer import load_model
from sweeps.ask.as_one import as_one
from sweeps.ask.fit import Fit, FitQuestion, fit
from sweeps.ask.sizing import delivered

FAR = "memory: given, given: {bandwidth: 100GB/s, efficiency: 0.5}, capacity: 1TiB"


def device(*sets: str) -> Device:
    main = "given={bandwidth: 300GB/s, efficiency: 1.0}"
    return load_device("rtx-pro-6000", [main, "capacity=48GiB", f"memories.far={{{FAR}}}", *sets])


def test_bandwidths_add_up_and_the_first_full_memory_ends_the_room() -> None:
    one = as_one(device())
    assert one.peak_gbps == pytest.approx(400)
    assert one.capacity_bytes == pytest.approx((48 << 30) / 0.75, abs=1)
    assert delivered(one) == pytest.approx(200e9)  # the far one's quarter takes the longest


def test_read_in_turn_they_take_the_sum_of_their_times() -> None:
    one = as_one(device("memories_overlap=none"))
    assert delivered(one) == pytest.approx(1 / (0.75 / 300e9 + 0.25 / 50e9))
    assert delivered(as_one(device("memories_port=60GB/s"))) == pytest.approx(60e9)


def test_a_device_with_one_memory_is_itself() -> None:
    alone = load_device("mlu370-x4")
    assert as_one(alone) is alone


def test_fit_has_the_room_and_the_rate_of_both() -> None:
    model, both = load_model("llama-3.1-8b"), load_device("hbm4-lpddr6")
    alone = load_device("hbm4-lpddr6", ["memories=null"])
    one, two = (fit(as_one(each), model, FitQuestion()) for each in (alone, both))
    assert isinstance(one, Fit) and isinstance(two, Fit)
    assert 1.05 < two.alone.tokens_per_s / one.alone.tokens_per_s < 1.25
    assert two.layout.slots > 1.2 * one.layout.slots


@pytest.mark.parametrize("overlap", ["phase", "step", "none"])
def test_the_short_run_of_fit_reads_both(overlap: str) -> None:
    """Two memories alike give about twice what one gives, or as much where they take turns."""
    far = "memory: lpddr5-6400-x16, channels: 24, interleave: 512B, capacity: 24GiB"
    sets = ["derate=1", f"memories.far={{{far}}}", f"memories_overlap={overlap}"]
    model, question = load_model("qwen3-0.6b"), FitQuestion(prompt=200, output=50)
    one, two = (
        fit(as_one(load_device("mlu370-x4", each)), model, question, True)
        for each in (sets[:1], sets)
    )
    assert isinstance(one, Fit) and isinstance(two, Fit)
    assert one.source == two.source == "simulated"
    times = two.delivered_gbps / one.delivered_gbps
    assert times == pytest.approx(1.0 if overlap == "none" else 2.0, rel=0.15)
