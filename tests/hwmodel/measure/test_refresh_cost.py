"""What refresh costs: the table has every choice, and its figures are what physics allows."""

from __future__ import annotations

import json
from functools import cache

import pytest
from typer.testing import CliRunner

from hwmodel.measure import refresh_cost
from hwmodel.measure.refresh_cost import RefreshChoice, RefreshCost, choices
from hwmodel.specs.device import load_device
from hwmodel.specs.memory_spec import row_delay
from sweeps.cli.main import app

SIZE = 1 << 20
measured = refresh_cost.refresh_table


@cache
def table(name: str) -> list[RefreshCost]:
    return measured(load_device(name).memory, SIZE)


@pytest.mark.parametrize("name", ["lpddr5-6400-x16", "hbm2e-3.2"])
def test_refresh_costs_at_most_what_it_takes_from_a_channel_that_waits_for_it(name: str) -> None:
    memory = load_device(name).memory
    found = table(name)
    assert len(found) == 4 * len(choices(memory)) == 4 * 10
    for cost in found:
        if cost.choice == RefreshChoice("none"):
            assert cost.relative == 1 and cost.refreshing == 0
        elif cost.choice.refresh == "all_bank":
            # the rank stands still while it refreshes, and rows have to close and open again
            assert 0.8 < cost.relative <= 1.001 - 0.9 * cost.refreshing
        else:
            assert 0.9 < cost.relative < 1.02 and 0.01 < cost.refreshing < 0.1


def test_a_memory_without_a_command_has_no_row_for_it() -> None:
    memory = load_device("ramulator-lpddr5-6400-x16").memory
    plain = memory.model_copy(
        update={"refresh": memory.refresh.model_copy(update={"per_bank": None})}
    )
    assert {choice.refresh for choice in choices(plain)} == {"none", "all_bank"}


def test_the_command_prints_the_table_and_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "sweeps.ask.memory_refresh.refresh_table", lambda memory: table(memory.name)
    )
    shown = CliRunner().invoke(app, ["memory", "refresh", "lpddr5-6400-x16"])
    assert shown.exit_code == 0
    assert "idle first" in shown.output and "per-bank wins" in shown.output
    found = CliRunner().invoke(app, ["memory", "refresh", "lpddr5-6400-x16", "--json"])
    rows = json.loads(found.output)["rows"]
    assert {row["postpone"] for row in rows} == {0, 4, 8}


def test_counting_activations_costs_a_hammered_bank_its_longer_row_cycle() -> None:
    plain, counting = (
        load_device(name, ["controller.refresh=none"]).memory
        for name in ("ddr5-4800-x32", "ddr5-4800-x32-prac")
    )
    cost = refresh_cost.counting_cost(plain, counting, SIZE)
    cycles = []
    for memory in (plain, counting):
        opened, read, closed = (
            row_delay(memory, *pair, ("bank",))
            for pair in (("ACT", "RD"), ("RD", "PRE"), ("PRE", "ACT"))
        )
        cycles.append(max(row_delay(memory, "ACT", "ACT", ("bank",)), opened + read + closed))
    assert cost["row pair"] == pytest.approx(cycles[0] / cycles[1], abs=5e-3)
    assert 0.95 < cost["64 B"] <= 1 and 0.95 < cost["in order"] <= 1
