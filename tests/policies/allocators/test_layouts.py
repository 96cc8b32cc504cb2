"""Has every number of every token an address of its own, in every layout?"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from hwmodel.description.description import DescriptionError
from hwmodel.specs.device import load_device
from hwmodel.specs.kv_order import LAYOUTS, Dims, KvOrder
from hwmodel.specs.transformer import load_model
from policies.allocators.kv_layout import KvLayout, Units, kv_layout

SMALL = {"base": 512, "slots": 48, "layers": 2, "kv_heads": 3, "head_bytes": 4}
ALL = [
    dims
    for dims in itertools.permutations(LAYOUTS["layer_kv_token"])
    if dims.index("unit") < dims.index("token")
]


def by_hand(layout: KvLayout, unit: tuple[int, int], index: dict[str, int]) -> int:
    """Address of a head's numbers of one token: planes of all slots, then the unit's own array."""
    start, size = unit
    sizes = {"layer": layout.layers, "kv": 2, "head": layout.kv_heads, "token": size}
    at = layout.dims.index("unit")
    plane = 0
    for dim in layout.dims[:at]:
        plane = plane * sizes[dim] + index[dim]
    inside, slot = 0, layout.head_bytes
    for dim in layout.dims[at + 1 :]:
        inside = inside * sizes[dim] + index[dim]
        slot *= 1 if dim == "token" else sizes[dim]
    return layout.base + (plane * layout.slots + start) * slot + inside * layout.head_bytes


def bytes_of(extents: Any) -> list[int]:
    return [
        byte
        for start, size in zip(extents.start.tolist(), extents.size.tolist(), strict=True)
        for byte in range(start, start + size)
    ]


@pytest.mark.parametrize("dims", ALL, ids="-".join)
def test_addresses_are_those_of_the_arrays(dims: Dims) -> None:
    layout = KvLayout(dims=dims, **SMALL)
    units = Units(np.array([16, 40, 0]), np.array([16, 8, 5]), np.array([16, 8, 16]))
    whole: list[int] = []
    for layer in range(2):
        for half in (0, 1):
            for head in range(3):
                found = bytes_of(layout.extents(units, layer, half, 3, 26, head))
                expected = []
                for nth in range(3, 26):
                    which, token = (
                        (0, nth) if nth < 16 else (1, nth - 16) if nth < 24 else (2, nth - 24)
                    )
                    unit = int(units.start[which]), int(units.size[which])
                    index = {"layer": layer, "kv": half, "head": head, "token": token}
                    first = by_hand(layout, unit, index)
                    expected += range(first, first + 4)
                assert found == expected
                whole += found
            # all heads together are each of them
            together = bytes_of(layout.extents(units, layer, half, 3, 26))
            assert sorted(together) == sorted(whole[-3 * 23 * 4 :])
        assert sorted(bytes_of(layout.extents(units, layer, None, 3, 26))) == sorted(whole[-552:])
    assert len(set(whole)) == len(whole) == 2 * 2 * 3 * 4 * 23
    assert min(whole) >= layout.base and max(whole) < layout.base + layout.bytes
    tiles = Units(np.array([0, 16, 32]), np.array([16, 16, 16]), np.array([16, 16, 16]))
    every = [byte for layer in range(2) for byte in bytes_of(layout.extents(tiles, layer, None))]
    assert sorted(every) == list(range(layout.base, layout.base + layout.bytes))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("layer_kv_tokens", "did you mean 'layer_kv_token'"),
        (["layer", "kv", "unit", "head"], "expected a layout's name, or layer, kv"),
        (["layer", "kv", "token", "unit", "head"], "unit: expected before token"),
        (7, "expected a layout's name"),
    ],
)
def test_mistakes(value: Any, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        TypeAdapter(KvOrder).validate_python(value)


@pytest.mark.parametrize("share", [0.1, 0.55])
def test_weights_that_do_not_fit_are_the_users_error(share: float) -> None:
    with pytest.raises(DescriptionError, match=r"too small for llama-2-7b: the weights take"):
        kv_layout(load_device("mlu370-x4", ["capacity=20GiB"]), load_model("llama-2-7b"), share)
