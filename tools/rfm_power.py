"""What RFM, PRAC, heat, in-line ECC and idle states cost, into docs/figures/rfm-power.json.

    python -m tools.rfm_power

Shares of what there is without, of one channel; closed forms beside RFM's worst case. A minute.
"""

from __future__ import annotations

from typing import Any

from hwmodel.measure.energy import idle_states
from hwmodel.measure.refresh_cost import (
    Choice,
    alert_cost,
    alert_worst_case,
    bandwidth,
    counting_cost,
    management_cost,
    worst_case,
)
from hwmodel.specs.device import load_device
from hwmodel.specs.memory_spec import MemorySpec
from tools.figures import keep

MANAGED = (
    "lpddr5-6400-x16", "lpddr5x-9600-x16", "lpddr6-10667-x12", "ddr5-4800-x32", "gddr7-28",
    "hbm3-6.4", "hbm3e-9.2", "hbm4-8.0",
)  # fmt: skip
COUNTING = ("ddr5-4800-x32", "ddr5-4800-x32-prac")
SIZE = 2 << 20


def management(name: str) -> dict[str, float]:
    """Shares that refresh, and RFMs, leave of each stream."""
    strict = load_device(name, ["refresh.management.RAAIMT=32"]).memory
    costs = management_cost(load_device(name).memory, SIZE)
    named = (("refresh", "refresh"), ("RFM", "rfm"))
    found = {f"{word}, {s}": each[kind] for word, kind in named for s, each in costs.items()}
    hard = management_cost(strict, SIZE)["row pair"]["rfm"]
    return {**found, "at 32": hard, "closed form": worst_case(strict)}


def idle_mw(memory: MemorySpec) -> float:
    """Standby and refresh of an idle channel of one rank, mW: closed form."""
    e, states = memory.energy, idle_states(memory)
    if "self_refresh_precharged" in states:
        return e.background.self_refresh or 0.0
    share = states.get("power_down_precharged", 0.0)
    down = e.background.power_down_precharged or 0.0
    power = share * down + (1 - share) * e.background.precharged
    interval_ns = memory.refresh_ticks() * memory.tick_clock.ns_of_ticks(1)
    return power + memory.organisation.banks * e.refresh_per_bank / interval_ns


def power(name: str) -> dict[str, float]:
    """Idle power by state, mW a channel; heat and in-line ECC as shares of bandwidth."""

    def load(*more: str) -> MemorySpec:
        return load_device(name, more).memory

    plain, hot, down = load(), load("temperature=95"), "controller.power_down_after=100ns"
    ecc = load("controller.inline_ecc=8", "controller.partial_write=read_modify_write")
    shares = {
        "standby": idle_mw(plain),
        "power-down": idle_mw(load(down)),
        "banks together": idle_mw(load(down, "controller.refresh=all_bank")),
        "self-refresh": idle_mw(load("controller.self_refresh_after=1us")),
    }
    choice = Choice(plain.controller.refresh)
    for what, extent, changed in (
        ("95 C, in order", None, hot), ("ECC, in order", None, ecc),
        ("95 C, 64 B", 64, hot), ("ECC, 576 B", 576, ecc),
    ):  # fmt: skip
        free, found = (bandwidth(each, choice, extent, SIZE) for each in (plain, changed))
        shares[what] = found / free
    return shares


def alerts(threshold: int) -> dict[str, float]:
    """Shares that back-offs leave of each stream, and the closed form of the hammered one."""
    memory = load_device(COUNTING[1], [f"refresh.alerts.threshold={threshold}"]).memory
    costs = alert_cost(memory, SIZE)
    found = {stream: cost["share"] for stream, cost in costs.items()}
    return {**found, "closed form": alert_worst_case(memory), "n": costs["again"]["alerts"]}


def figures() -> dict[str, Any]:
    values: dict[str, Any] = {"management": {}, "power": {}}
    for name in MANAGED:
        for kind, found in (("management", management(name)), ("power", power(name))):
            values[kind][name] = {key: round(value, 4) for key, value in found.items()}
    plain, counting = (load_device(name).memory for name in COUNTING)
    counted = counting_cost(plain, counting, SIZE)
    values["counting"] = {stream: round(share, 4) for stream, share in counted.items()}
    values["alerts"] = {
        str(threshold): {key: round(value, 4) for key, value in alerts(threshold).items()}
        for threshold in (512, 64, 16)
    }
    return values


if __name__ == "__main__":
    keep("rfm-power", "python -m tools.rfm_power", figures())
