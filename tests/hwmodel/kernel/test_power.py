"""Power-down and self-refresh: closed forms of time, latency and energy, and mistakes."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from hwmodel.description.description import DescriptionError
from hwmodel.measure.energy import energy_parts, idle_states
from hwmodel.measure.open_loop import OpenLoop
from hwmodel.oracle.audit import audit
from hwmodel.oracle.command_log import CODE, CommandLog
from hwmodel.specs.commands import COMMANDS
from hwmodel.specs.device import load_device
from hwmodel.specs.memory_spec import MemorySpec
from tests.hwmodel.memories import GENERATED, SHIPPED, document, spec
from tests.hwmodel.one_channel import simulate_channel
from tests.hwmodel.oracle.reference import simulate

LPDDR5 = "lpddr5-6400-x16"
SLEEPY = [n for n in SHIPPED if spec(n).power_states and not n.startswith("ramulator")]
DOWN = {"controller__power_down_after": "100ns"}
GAP = 1_000_000


def two_reads(memory: MemorySpec, gap: int = GAP) -> OpenLoop:
    """A read at tick 0 and one of the same row `gap` ticks later."""
    run = OpenLoop(memory)
    run.feed(0, np.zeros(2, np.int64), np.zeros(2, np.int64), np.array([0, gap]))
    run.finish()
    return run


def asleep(run: OpenLoop) -> list[int]:
    """Ticks of the first rank: power-down closed, open; self-refresh and deep sleep so."""
    return list(run.states["asleep"][0, 0].tolist())


@pytest.mark.parametrize("name", ["lpddr5-6400-x16", "hbm3-6.4", "gddr6-14"])
def test_without_refresh_all_but_the_entry_time_is_spent_in_power_down_with_the_row_open(
    name: str,
) -> None:
    off, on = (two_reads(spec(name, controller__refresh="none", **more)) for more in ({}, DOWN))
    memory = on.memory
    first = int(simulate(memory, [(0, 0, 0)]).end_tick)
    entry = memory.tick_clock.ticks(memory.tick_clock.clocks_of_ns(Fraction(100)))
    assert asleep(on) == [0, GAP - first - entry, 0, 0, 0, 0]
    assert memory.power_states is not None
    leave = memory.ticks(memory.power_states.power_down_exit)
    ready = 1 if memory.sync is None else 0  # a data clock starts after the exit as before it
    waits = int(on.states["latency_sum"].sum() - off.states["latency_sum"].sum())
    assert leave - ready <= waits <= leave


@pytest.mark.parametrize("name", SLEEPY)
def test_refreshes_wake_an_idle_channel_for_as_long_as_the_closed_form_says(name: str) -> None:
    run = two_reads(spec(name, **DOWN))
    expected = idle_states(run.memory)["power_down_precharged"]
    assert sum(asleep(run)) / GAP == pytest.approx(expected, abs=0.01)


def test_self_refresh_has_the_rest_of_a_gap_and_its_exit_is_longer() -> None:
    more = {"controller__self_refresh_after": "10us"}
    off, on = two_reads(spec(LPDDR5)), two_reads(spec(LPDDR5, **more))
    first = int(simulate(on.memory, [(0, 0, 0)]).end_tick)
    enters = on.memory.tick_clock.ticks(on.memory.tick_clock.clocks_of_ns(Fraction(10_000)))
    assert sum(asleep(on)[2:4]) == pytest.approx(GAP - first - enters, abs=200)  # a refresh lasts
    assert sum(asleep(on)[:2]) == 0
    leave = on.memory.ticks("tRFCab + tXSR")
    assert leave <= on.end_tick - off.end_tick <= leave + on.memory.ticks("tRFCpb")


@pytest.mark.parametrize("state", ["power_down", "self_refresh"])
def test_energy_of_an_idle_channel_is_that_of_its_states(state: str) -> None:
    more = {f"controller__{state}_after": "100ns"}
    off, on = (two_reads(spec(LPDDR5, **m)) for m in ({}, more))

    def parts(run: OpenLoop) -> dict[str, float]:
        ns = run.memory.tick_clock.ns_of_ticks(run.end_tick)
        return energy_parts(run.memory, run.commands, ns, run.active_ns, 1, run.asleep)

    before, after, b = parts(off), parts(on), on.memory.energy.background
    power = {"power_down": b.power_down_precharged, "self_refresh": b.self_refresh}[state]
    ns = on.memory.tick_clock.ns_of_ticks(sum(asleep(on)))
    slept = sum(nj for name, nj in after.items() if name not in before)
    assert slept == pytest.approx(ns * (power or 0) / 1000, rel=0.01)
    saved = ns * (b.precharged - (power or 0)) / 1000
    if state == "self_refresh":
        saved += before["refresh"] - after["refresh"]
        assert after["refresh"] < 0.01 * before["refresh"]
    assert sum(before.values()) - sum(after.values()) == pytest.approx(saved, rel=0.01)


def test_a_channel_that_is_never_quiet_for_so_long_does_not_sleep() -> None:
    memory = spec(LPDDR5, **DOWN)
    tick = np.arange(0, 20_000, 40)  # 50 ns
    address = np.arange(len(tick), dtype=np.int64) * 64
    nothing = np.zeros(len(tick), np.int64)
    assert sum(map(sum, simulate_channel(memory, tick, address, nothing).asleep_ticks)) == 0


@pytest.mark.parametrize("state", ["power_down", "self_refresh"])
def test_kernel_and_oracle_agree_on_long_gaps_of_a_shipped_memory(state: str) -> None:
    more = {f"controller__{state}_after": "300ns", "controller__refresh": "all_bank"}
    memory = spec("hbm3-6.4", **more)
    chance = np.random.default_rng(3)
    tick = np.cumsum(chance.integers(0, 2000, 14))
    tick[5:10] = tick[5]
    address = chance.integers(0, memory.organisation.capacity_bytes // 32, 14) * 32
    kind = chance.integers(0, 2, 14)
    requests: Any = list(zip(tick.tolist(), address.tolist(), kind.tolist(), strict=True))
    oracle, kernel = simulate(memory, requests), simulate_channel(memory, tick, address, kind)
    ranks = list(oracle.asleep.values())
    assert kernel.end_tick == oracle.end_tick
    assert kernel.asleep_ticks[: len(ranks)] == ranks and sum(map(sum, ranks)) > 1_000


LPDDR5X = "lpddr5x-9600-x16"
"""Its entries and exits are commands."""


def logged(memory: MemorySpec, *ticks: int) -> tuple[list[tuple[int, str]], CommandLog]:
    """(tick, command) of reads of one row at these ticks, and the log, which is legal."""
    at, nothing = np.array(ticks), np.zeros(len(ticks), np.int64)
    log = simulate_channel(memory, at, nothing, nothing).commands
    assert audit(memory, log) == []
    return [
        (t, COMMANDS[c]) for t, c in zip(log.tick.tolist(), log.command.tolist(), strict=True)
    ], log


def test_entry_and_exit_take_the_bus_where_they_are_commands() -> None:
    memory = spec(LPDDR5X, controller__refresh="none", **DOWN)
    first = int(simulate(memory, [(0, 0, 0)]).end_tick)
    begin = first + memory.tick_clock.ticks(memory.tick_clock.clocks_of_ns(Fraction(100)))
    commands, log = logged(memory, 0, GAP)
    assert [c for c in commands if c[1].startswith("PD")] == [(begin, "PDE"), (GAP, "PDX")]
    assert commands[-1][0] >= GAP + memory.ticks("max(tXP, 3)")
    wrong = [log.take(log.command != CODE[name]) for name in ("PDX", "PDE")]
    rules = [{v.rule for v in audit(memory, each)} for each in wrong]
    assert "power: a command after PDE, before its exit" in rules[0]
    assert rules[1] == {"power: PDX without its PDE"}
    early = log._replace(tick=np.where(log.command == CODE["PDX"], begin + 1, log.tick))
    assert {v.rule for v in audit(memory, early)} == {
        "power: PDX before power_states.power_down_stay is over"
    }


@pytest.mark.parametrize("after", [1, 3, 9, 40])
def test_a_request_just_after_the_entry_waits_until_the_state_may_be_left(after: int) -> None:
    """tCSPD from PDE to PDX, then tXP: to the tick."""
    memory = spec(LPDDR5X, controller__refresh="none", **DOWN)
    commands, _ = logged(memory, 0, GAP)
    begin = next(tick for tick, name in commands if name == "PDE")
    commands, _ = logged(memory, 0, begin + after)
    leave = begin + max(after, memory.ticks("tCSPD + 1"))
    assert (leave, "PDX") in commands
    served = next(tick for tick, name in commands if tick > leave)
    assert served == leave + memory.ticks("max(tXP, 3)")


def test_power_down_is_left_for_self_refresh_in_which_refreshes_are_the_dies_own() -> None:
    memory = spec(LPDDR5X, controller__self_refresh_after="10us", **DOWN)
    commands, _ = logged(memory, 0, GAP)
    names = [name for _, name in commands]
    inside = names[names.index("SRE") + 1 : names.index("SRX")]
    assert set(inside) == {"REFPB"} and len(inside) > 1000
    assert names[names.index("SRE") - 1] == "PDX" and (GAP, "SRX") in commands
    ticks = dict(reversed([(name, tick) for tick, name in commands]))
    end = memory.tick_clock.ticks(memory.tick_clock.clocks_of_ns(Fraction(10_000)))
    first = int(simulate(memory, [(0, 0, 0)]).end_tick)
    assert ticks["SRE"] - (first + end) in range(memory.ticks("tRFCpb") + 1)


def test_deep_sleep_lasts_four_milliseconds_and_takes_two_hundred_microseconds_to_leave() -> None:
    state = {"controller__deep_sleep_after": "20us", "energy__background__deep_sleep": "5mW"}
    memory = spec(
        LPDDR5X, controller__self_refresh_after="10us", controller__refresh="none", **state
    )
    ms = memory.ticks("tPDN_DSM") // 4
    for gap, wakes in ((8 * ms, 8 * ms), (ms, None)):
        run = two_reads(memory, gap)
        first = int(simulate(memory, [(0, 0, 0)]).end_tick)
        begin = first + memory.tick_clock.ticks(memory.tick_clock.clocks_of_ns(Fraction(20_000)))
        leave = wakes or begin + 4 * ms
        assert asleep(run)[4:] == [0, leave - begin]
        assert run.end_tick - leave - memory.ticks("tXDSM") < 2 * first
        ns = run.memory.tick_clock.ns_of_ticks(run.end_tick)
        parts = energy_parts(memory, run.commands, ns, run.active_ns, 1, run.asleep)
        slept = memory.tick_clock.ns_of_ticks(leave - begin)
        assert parts["deep_sleep"] == pytest.approx(slept * 5 / 1000)
    assert idle_states(memory) == {"deep_sleep_precharged": 1.0}


def test_a_row_cannot_name_an_entry_and_an_entry_needs_its_exit() -> None:
    made = document(LPDDR5X)
    row = {"scope": "rank", "after": "PDX", "before": "ACT", "delay": 3}
    made.put(("constraints",), [*made.data["constraints"], row], GENERATED)
    with pytest.raises(DescriptionError, match="the times of PDX stand in power_states"):
        made.build(MemorySpec)
    with pytest.raises(DescriptionError, match="commands: PDX, SRE, SRX missing"):
        spec(LPDDR5, commands__PDE={"bus": "command"})
    settings = ["controller.self_refresh_after=1us", "controller.deep_sleep_after=1ms"]
    with pytest.raises(DescriptionError, match=r"and energy.background.deep_sleep"):
        load_device(LPDDR5X, settings)


def test_self_refresh_waits_for_the_bus_of_a_refresh_longer_than_it_keeps_its_banks() -> None:
    changes = {"commands__REFPB__slots": 300, "controller__refresh_postpone": 0}
    memory = spec("lpddr5x-9600-x16", controller__self_refresh_after="0ns", **changes)
    arrival, zeros = np.arange(40) * memory.refresh_ticks() // 3, np.zeros(40, np.int64)
    result = simulate_channel(memory, arrival, zeros, zeros)
    assert (result.commands.command == CODE["SRE"]).any()
    assert audit(memory, result.commands, end_tick=int(result.end_tick)) == []
