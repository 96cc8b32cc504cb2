"""Are the streams still those under which the reference figures were measured?"""

from __future__ import annotations

import zlib

import pytest

from tools.peers.streams import mix, pcg

PCG = {
    "seq": 0x60DCCCA2,
    "rand64": 0x0242E936,
    "page256": 0xA6BE63F4,
    "page512": 0x674D2E2A,
    "page1k": 0xC3469272,
    "page2k": 0x25A1B31B,
    "page4k": 0xB1C3295D,
    "page16k": 0x5449DB1D,
    "seq_w25_mix": 0x8FF8F4C6,
    "seq_w25_run": 0xF6AE7D5A,
    "seq_w25_run1": 0xD98545A8,
    "rand_w50": 0x56205488,
}
MIX = {
    "seq_read": 0xB42A63F5,
    "rand_read": 0xA8D4E98C,
    "paged_256": 0xA931D69F,
    "paged_4096": 0x8F3599CB,
    "seq_w25_each": 0xBFC5C410,
    "seq_w25_run64": 0xFC100E70,
    "rand_rw50": 0x9F171764,
}
"""crc32 of addresses, then writes, little-endian int64: of 10,000 lines (PCG), or requests
over 16 MiB (MIX)."""


@pytest.mark.parametrize("name", [*PCG, *MIX])
def test_streams_are_those_of_the_measurements(name: str) -> None:
    address, write = pcg(name, 10_000) if name in PCG else mix(name, 10_000, 32, 1 << 24)
    digest = zlib.crc32(write.astype("<i8").tobytes(), zlib.crc32(address.astype("<i8").tobytes()))
    assert digest == {**PCG, **MIX}[name]
