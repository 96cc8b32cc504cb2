"""An address has one place, and every place one address."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwmodel.kernel.address import decode, to_channel, to_device
from hwmodel.specs.device import load_device

DEVICES = {
    (name, form): load_device(name, [f"channel_hash={form}"])
    for name in ("mlu370-x4", "a100-80gb")
    for form in ("none", "rotate")
}


@pytest.mark.parametrize("key", DEVICES)
@given(blocks=st.lists(st.integers(0, 2**24), min_size=1, max_size=50))
def test_channel_and_local_address_give_the_device_address_back(
    key: tuple[str, str], blocks: list[int]
) -> None:
    device = DEVICES[key]
    address = np.array(blocks, np.int64) * 32
    channel, local = to_channel(device, address)
    assert ((channel >= 0) & (channel < device.channels)).all()
    assert (to_device(device, channel, local) == address).all()


@pytest.mark.parametrize("key", DEVICES)
def test_every_row_of_blocks_uses_each_channel_once(key: tuple[str, str]) -> None:
    device = DEVICES[key]
    assert device.accelerator is not None
    blocks = np.arange(device.channels * 1000, dtype=np.int64)
    channel, local = to_channel(device, blocks * device.accelerator.interleave)
    rows = np.sort(channel.reshape(1000, -1), axis=1)
    assert (rows == np.arange(device.channels)).all()
    assert (
        local.reshape(1000, -1) == np.arange(1000)[:, None] * device.accelerator.interleave
    ).all()


def test_xor_needs_a_power_of_two_of_channels() -> None:
    device = load_device("mlu370-x4", ["channels=16", "capacity=16GiB", "channel_hash=xor"])
    address = np.arange(16 * 16, dtype=np.int64) * 512
    channel, local = to_channel(device, address)
    assert (to_device(device, channel, local) == address).all()
    assert len(set(zip(channel.tolist(), local.tolist(), strict=True))) == len(address)


@pytest.mark.parametrize("name", ["lpddr5-6400-x16", "hbm2e-3.2", "ramulator-lpddr5-6400-x16"])
def test_bank_row_and_column_of_a_channel_are_a_bijection(name: str) -> None:
    memory = load_device(name).memory
    o = memory.organisation
    rng = np.random.default_rng(1)
    burst = np.unique(rng.integers(0, o.capacity_bytes // o.burst_bytes, 100_000))
    bank, row, column = decode(memory, burst * o.burst_bytes)
    assert bank.max() < o.banks and row.max() < o.rows and column.max() < o.columns
    place = (bank * o.rows + row) * o.columns + column
    assert len(np.unique(place)) == len(burst)


def test_the_bank_hash_spreads_rows_of_one_bank_over_others() -> None:
    hashed = load_device("lpddr5-6400-x16").memory
    plain = load_device("lpddr5-6400-x16", ["bank_hash=[]"]).memory
    same_bank = np.arange(64, dtype=np.int64) << (5 + 1 + 2 + 5 + 2)
    assert len(np.unique(decode(plain, same_bank)[0])) == 1
    assert len(np.unique(decode(hashed, same_bank)[0])) == 16
