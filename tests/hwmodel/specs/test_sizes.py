"""Rows and stacks that are no power of two, and bursts that carry less than their wires."""

from __future__ import annotations

import numpy as np
import pytest

from hwmodel.kernel.address import decode, encode
from hwmodel.oracle.command_log import CODE
from hwmodel.specs.device import load_device
from tests.hwmodel.one_channel import simulate_channel


def test_twelve_dies_of_24_gbit_make_36_gb_of_sixteen_channels() -> None:
    memory = load_device("hbm3e-9.2-12high").memory
    assert memory.organisation.capacity_bytes * 16 == 36 << 30
    assert memory.organisation.banks == 96 and memory.organisation.bank_numbers == 128


def test_every_address_of_three_stacks_and_odd_rows_has_a_place_of_its_own() -> None:
    memory = load_device("hbm3e-9.2-12high", ["density=12Gb", "organisation.rows=6"]).memory
    o = memory.organisation
    address = np.arange(0, o.capacity_bytes, o.burst_bytes)
    bank, row, column = decode(memory, address)
    assert (encode(memory, bank, row, column) == address).all()
    assert len(np.unique((bank * o.rows + row) * o.columns + column)) == len(address)
    assert len(np.unique(bank)) == o.banks and row.max() == o.rows - 1


def test_a_burst_of_36_bytes_brings_32() -> None:
    memory = load_device("lpddr6-10667-x12").memory
    assert memory.organisation.wire_bytes == 36 and memory.organisation.burst_bytes == 32
    assert memory.peak_gbps == pytest.approx(12 / 8 * 10.667 * 8 / 9, rel=1e-4)


def test_three_stacks_are_refreshed_bank_by_bank_and_no_fourth_is() -> None:
    settings = ["timing.tREFI=39000ns", "timing.tRFCpb=20ns"]
    memory = load_device("hbm3e-9.2-12high", settings).memory
    assert memory.refreshes_per_round == 48
    late, one = np.array([200_000]), np.zeros(1, np.int64)
    log = simulate_channel(memory, late, one, one).commands
    issued = log.command == CODE["REFPB"]
    banks = {*zip(*(v[issued].tolist() for v in (log.stack, log.bankgroup, log.bank)), strict=True)}
    assert len(banks) == 48 and {stack for stack, _, _ in banks} == {0, 1, 2}
