"""Does another simulator's mapper, written again here, decode our addresses to our places?"""

from __future__ import annotations

from itertools import permutations
from math import log2

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwmodel.description.description import DescriptionError
from hwmodel.measure.peer_mapper import not_linear, peer_mapper
from hwmodel.measure.simulator_traces import level_names, level_sizes, to_vectors
from hwmodel.specs.device import load_device
from tests.rotation import LONG

LOCAL = (
    "lpddr5-6400-x16", "lpddr5-6400-x16-bl32", "lpddr4-4266-x16", "ddr5-4800-x32", "hbm2-2.0",
    "hbm3-6.4", "gddr6-14", "mlu370-x4",
)  # fmt: skip
LINEAR = ["".join(order) for order in permutations(("ro", "co", "bg", "ba", "ra", "ch"))]


def sliced(address: int, widths: list[int]) -> list[int]:
    """Fields of an address, from the least significant up."""
    found = []
    for width in widths:
        found.append(address % (1 << width))
        address >>= width
    assert address == 0
    return found


def by_ramulator(name: str, address: int, sizes: list[int], burst: int) -> list[int]:
    """Channel above the burst, then column, and the rest upwards or downwards."""
    bits = [int(log2(size)) for size in sizes]
    channel, inner, column = bits[0], bits[1:-1], bits[-1]
    down = name == "ChRaBaRoCo"
    widths = [channel, column, *(inner[::-1] if down else inner)]
    first, last, *rest = sliced(address // burst, widths)
    return [first, *(rest[::-1] if down else rest), last]


def by_dramsim3(name: str, address: int, sizes: dict[str, int], burst: int) -> dict[str, int]:
    """Fields in the order of `address_mapping`; a pseudo-channel is a channel, a stack a rank."""
    tokens = [name[at : at + 2] for at in range(10, -1, -2)]
    values = sliced(address // burst, [int(log2(sizes[token])) for token in tokens])
    return dict(zip(tokens, values, strict=True))


@settings(max_examples=1000 if LONG else 30)
@given(st.sampled_from(LOCAL), st.lists(st.integers(0, 1 << 40), min_size=1, max_size=20))
def test_ramulator_decodes_our_places(name: str, drawn: list[int]) -> None:
    device = load_device(name)
    sizes, burst = level_sizes(device, True), device.memory.organisation.burst_bytes
    local = np.array(drawn) % (int(np.prod(sizes)) * burst)
    for mapper in ("RoBaRaCoCh", "ChRaBaRoCo"):
        if any(size & (size - 1) for size in sizes):
            with pytest.raises(DescriptionError, match="takes powers of two"):
                peer_mapper(mapper, "ramulator", device, True)
            continue
        encoded = peer_mapper(mapper, "ramulator", device, True).encode(device, local, True)
        found = [by_ramulator(mapper, each, sizes, burst) for each in encoded.tolist()]
        assert found == to_vectors(device, local, True).tolist()


@settings(max_examples=1000 if LONG else 40)
@given(
    st.sampled_from(LOCAL), st.sampled_from(LINEAR),
    st.lists(st.integers(0, 1 << 40), min_size=1, max_size=20),
)  # fmt: skip
def test_dramsim3_decodes_our_places(name: str, mapper: str, drawn: list[int]) -> None:
    device = load_device(name)
    levels, sizes = level_names(device), level_sizes(device, True)
    if any(size & (size - 1) for size in sizes):
        return
    burst = device.memory.organisation.burst_bytes
    local = np.array(drawn) % (int(np.prod(sizes)) * burst)
    of = dict(zip(levels, sizes, strict=True))
    pseudo, stacks = of.get("pseudo-channel", 1), of.get("stack", 1)
    merged = {
        "ch": pseudo, "ra": of.get("rank", 1) * stacks, "bg": of["bank group"], "ba": of["bank"],
        "ro": of["row"], "co": of["column"],
    }  # fmt: skip
    encoded = peer_mapper(mapper, "dramsim3", device, True).encode(device, local, True)
    for address, vector in zip(
        encoded.tolist(), to_vectors(device, local, True).tolist(), strict=True
    ):
        place = dict(zip(levels, vector, strict=True))
        assert by_dramsim3(mapper, address, merged, burst) == {
            "ch": place.get("pseudo-channel", 0),
            "ra": place.get("rank", 0) * stacks + place.get("stack", 0), "bg": place["bank group"],
            "ba": place["bank"], "ro": place["row"], "co": place["column"],
        }  # fmt: skip


def test_channels_of_a_device_are_encoded_too() -> None:
    device = load_device("a100-80gb")
    sizes, burst = level_sizes(device, False), device.memory.organisation.burst_bytes
    if any(size & (size - 1) for size in sizes):
        with pytest.raises(DescriptionError, match="choose one by --channel"):
            peer_mapper("RoBaRaCoCh", "ramulator", device, False)
        return
    address = np.random.default_rng(1).integers(0, 1 << 34, 50) // burst * burst
    encoded = peer_mapper("RoBaRaCoCh", "ramulator", device, False).encode(device, address, False)
    found = [by_ramulator("RoBaRaCoCh", each, sizes, burst) for each in encoded.tolist()]
    assert found == to_vectors(device, address, False).tolist()


def test_hashes_and_split_fields_are_named() -> None:
    device = load_device("mlu370-x4")
    assert "24 channels" in not_linear(device, False) and not_linear(device, True)
    plain = ("address_map=[column,bankgroup,bank,row]", "bank_hash=[]")
    assert not_linear(load_device("lpddr5-6400-x16", plain), True) == []


@pytest.mark.parametrize(
    ("form", "name", "message"),
    [
        ("ramulator", "RoBaRaCoCx", "did you mean 'RoBaRaCoCh'"),
        ("dramsim3", "rochrababgc", "expected an order of ch, ra, bg, ba, ro and co"),
        ("gem5", "RoBaRaCoCh", "is for --format ramulator or dramsim3; got gem5"),
        ("ramulator", "RoBaRaCoCh", "has 24 channels; choose one by --channel"),
    ],
)
def test_mistakes(form: str, name: str, message: str) -> None:
    with pytest.raises(DescriptionError, match=message):
        peer_mapper(name, form, load_device("mlu370-x4"), False)
