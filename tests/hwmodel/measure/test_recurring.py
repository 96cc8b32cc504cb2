"""Short simulations meet what comes at intervals at its rate, or are refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from hwmodel.description.description import DescriptionError
from hwmodel.kernel.memory import Descriptors, simulate_system
from hwmodel.measure.bandwidth import measure, measure_patterns
from hwmodel.measure.recurring import INTERVALS, Owed, matters, passes, recurring, window_ns
from hwmodel.measure.refresh_cost import hammered
from hwmodel.specs.device import Device, load_device
from hwmodel.specs.transformer import load_model
from policies.memory.fidelity import FidelitySpec
from policies.memory.probe import Probe, weights_efficiency

ALL_BANK = "controller.refresh=all_bank"


def reads(device: Device, count: int, size: int = 16 << 10) -> Descriptors:
    """Of extents at random places, by all engines in turn."""
    rng = np.random.default_rng(4)
    start = rng.integers(0, device.capacity_bytes // size, count) * size
    each = np.full(count, size, np.int64)
    return Descriptors(np.arange(count) % device.dma.engines, start, each, np.zeros(count, bool))


def test_a_window_holds_whole_intervals_of_what_matters_to_it() -> None:
    device = load_device("h200", [ALL_BANK])
    (refresh,) = recurring(device.memory)
    assert refresh.every_ns == pytest.approx(3993.6) and refresh.turns == 1
    assert window_ns(device.memory, 1000.0) == pytest.approx(refresh.every_ns)
    assert window_ns(device.memory, 5000.0) == pytest.approx(2 * refresh.every_ns)
    assert window_ns(device.memory, 1e6) == 1e6  # one more or less of 250 matters little
    assert window_ns(load_device("mlu370-x4").memory, 13_600.0) == 13_600.0


@pytest.mark.parametrize("lasts", [0.05, 0.3, 0.9, 1.4, 3.7])
@pytest.mark.parametrize("turn", [0, 1, 5])
def test_a_short_stream_meets_refreshes_at_their_rate(lasts: float, turn: int) -> None:
    """Counted: those that fall due while it lasts, at each of its times."""
    memory = load_device("h200", [ALL_BANK]).memory
    every = recurring(memory)[0].every_ns
    times = passes(memory, lasts * every, turn)
    met = [math.floor((passed % every) / every + lasts) for passed in times]
    assert len(times) == min(math.ceil(INTERVALS / lasts), 16)
    assert np.mean(met) == pytest.approx(lasts, abs=1 / len(times))


def test_the_places_of_a_round_are_met_alike() -> None:
    memory = load_device("mlu370-x4").memory
    event = matters(memory, 500.0)
    assert event is not None and event.turns == memory.refreshes_per_round
    place = [int(p // event.every_ns) for turn in range(50) for p in passes(memory, 500.0, turn)]
    assert np.ptp(np.bincount(place, minlength=event.turns)) <= 0.2 * len(place) / event.turns


def test_what_is_simulated_at_several_times_takes_its_mean_at_any() -> None:
    """A stream of a third of an interval, against forty times; at tick 0 it meets no refresh."""
    device = load_device("jetson-agx-orin", [ALL_BANK])
    stream = reads(device, 16)
    every = recurring(device.memory)[0].every_ns

    def mean(times: list[float]) -> float:
        return float(
            np.mean([simulate_system(device, stream, passed_ns=p).elapsed_ns for p in times])
        )

    truth = mean([every * (i + 0.5) / 40 for i in range(40)])
    share, _ = Probe(device, FidelitySpec(), simulate_system).whole([stream], times=None)
    found = float(stream.size.sum()) / (share * device.peak_gbps) * device.derate
    assert found == pytest.approx(truth, rel=0.02)
    assert mean([0.0]) < 0.96 * truth


def test_refreshes_come_at_their_rate_whatever_has_passed() -> None:
    """Counted over the first five intervals, while every channel is busy."""
    device = load_device("jetson-agx-orin", [ALL_BANK])
    stream, every = reads(device, 400), recurring(device.memory)[0].every_ns
    for share in (0.0, 0.2, 0.35, 0.8, 7.2):
        found = simulate_system(device, stream, measure_ns=5.5 * every, passed_ns=share * every)
        due = math.floor(found.simulated_ns / every + share % 1)
        assert abs(found.commands["REFAB"] / device.channels - due) < 1  # where a channel rests


def refreshes(postpone: int, lasts: int) -> float:
    """Of all banks of a channel in windows of so many intervals of a long stream, a mean of four
    times."""
    device = load_device("jetson-agx-orin", [ALL_BANK, f"controller.refresh_postpone={postpone}"])
    every, stream = recurring(device.memory)[0].every_ns, reads(device, 2000 * lasts)
    owed, found, span = Owed(device.memory, 500.0), [], lasts * every
    moments, before = passes(device.memory, span, times=4), owed.settles(False, 2 * span)
    for passed in [moments[0]] * before + moments:
        begin = owed.at_begin(False)
        result = simulate_system(
            device, stream, warmup_ns=span, measure_ns=span, passed_ns=passed, **begin
        )
        owed.note(False, result)
        found.append(result.commands["REFAB"] / device.channels)
    return float(np.mean(found[before:]))


@pytest.mark.parametrize("lasts", [2, 10])
def test_refreshes_that_may_be_postponed_are_met_at_their_rate(lasts: int) -> None:
    """Warm-up and window of two intervals could postpone all of their own, of ten eight of them.
    Before its first request comes, a window issues two more than fall due, which are owed more."""
    assert refreshes(8, lasts) == pytest.approx(2 * lasts + 2, abs=0.25)
    assert refreshes(0, lasts) == pytest.approx(2 * lasts, abs=0.5)


def hammering(device: Device, count: int) -> Descriptors:
    """Two rows of a bank in turn, one request at a time."""
    start = np.resize(np.array(hammered(device.memory), np.int64), count)
    return Descriptors(
        np.zeros(count, np.int64), start, np.full(count, 32, np.int64), np.zeros(count, bool)
    )


@pytest.mark.parametrize(
    ("memory", "settings", "command"),
    [
        (
            "lpddr5-6400-x16",
            ["controller.refresh_management=rfm", "controller.refresh=none"],
            "RFM",
        ),
        ("ddr5-4800-x32-prac", ["controller.row_counting=prac"], "RFMAB"),
    ],
)
def test_a_window_that_cannot_see_what_is_due_says_so(
    memory: str, settings: list[str], command: str
) -> None:
    one = [
        "channels=1",
        f"capacity={1 if memory.startswith('lpddr') else 8}GiB",
        "dma.engines=1",
        "controller.activation_buffer=0",
    ]
    narrow = ["dma.request=64B", "dma.window=64B", f"memory={memory}"]
    device = load_device("mlu370-x4", [*one, *narrow, *settings])
    short, long = (simulate_system(device, hammering(device, n)) for n in (60, 6000))
    assert command not in short.commands or not short.commands[command]
    assert "due at this rate" in short.unmet
    assert long.commands[command] and not long.unmet
    probe = Probe(device, FidelitySpec(), simulate_system)
    with pytest.raises(DescriptionError, match="measure to be longer"):
        probe.whole([hammering(device, 60)])


def test_memory_and_a_run_agree_on_what_reads_in_order_reach() -> None:
    device = load_device("tpu-v5e")
    found = measure(device, "sequential")
    weights = weights_efficiency(
        device, load_model("llama-3.1-8b"), FidelitySpec(), simulate_system
    )
    assert found["bandwidth_gbps"] == pytest.approx(weights * device.peak_gbps, rel=0.02)
    assert found["bound_by"] == ["engines"]
    assert found["bandwidth_gbps"] <= 1.005 * found["bound_gbps"]


@pytest.mark.parametrize("layers", [1, 8])
def test_refreshes_that_are_owed_are_carried_from_one_stream_to_the_next(layers: int) -> None:
    """Streams of 1.5 MiB and of 12, one after the other: as many refreshes as fall due."""
    device = load_device("dgx-spark-gb10", [ALL_BANK, "controller.refresh_postpone=8"])
    memory, issued, took_ns = device.memory, [], []

    def noted(*given: Any, **more: Any) -> Any:
        found = simulate_system(*given, **more)
        issued.append(int(found.commands["REFAB"]))
        took_ns.append(found.elapsed_ns)
        return found

    probe = Probe(device, FidelitySpec(), noted)
    for _ in range(24 // layers):
        probe.whole([reads(device, 96 * layers)])
    interval_ns = float(memory.tick_clock.ns_of_ticks(memory.refresh_ticks()))
    due = device.channels * memory.organisation.ranks * sum(took_ns[-8:]) / interval_ns
    assert sum(issued[-8:]) / due == pytest.approx(1, abs=0.15)


@pytest.mark.parametrize("name", ["dgx-spark-gb10", "h200"])
def test_what_memory_says_of_postponed_refreshes_is_within_its_bound(name: str) -> None:
    """Its window of ten intervals could postpone eight of its own."""
    device = load_device(name, [ALL_BANK, "controller.refresh_postpone=8"])
    found = measure(device, "sequential")
    assert found["bandwidth_gbps"] <= found["bound_gbps"]


def test_check_bytes_and_reads_before_writes_are_no_bandwidth() -> None:
    ecc = ["controller.inline_ecc=8", "controller.partial_write=read_modify_write"]
    plain, checked = (of_writes(each) for each in ([], ecc))
    assert plain["bandwidth_gbps"] == plain["moved_gbps"]
    assert checked["bandwidth_gbps"] < 0.5 * checked["moved_gbps"]
    assert checked["bandwidth_gbps"] < 0.5 * plain["bandwidth_gbps"]
    assert checked["requested_bytes"] == plain["requested_bytes"]


def of_writes(settings: list[str]) -> dict[str, Any]:
    """64 B at random, half of them written."""
    device = load_device("lpddr5-6400-x16-8b", settings)
    return measure_patterns(device, ["random_64B_w50"])[0]
