"""Has every number of every token an address of its own, in every layout?"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from hwmodel.description.description import DescriptionError
from hwmodel.specs.device import load_device
from hwmodel.specs.kv_order import LAYOUTS, Dims, KvOrder
from hwmodel.specs.transformer import load_model
from policies.allocators.allocator import Demand, Limits
from policies.allocators.capabilities import Forks
from policies.allocators.kv_layout import KvLayout, Units, kv_layout
from policies.allocators.registry import POLICIES
from policies.memory import traffic
from policies.predictors.predictor import Prediction

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


@pytest.mark.parametrize("pad", [0, 16, 256])
@pytest.mark.parametrize("name", LAYOUTS)
def test_rows_lie_a_pad_apart_and_nothing_overlaps(name: str, pad: int) -> None:
    tokens, heads, head_bytes, layers = 64, 4, 256, 3
    dims = LAYOUTS[name]
    layout = KvLayout(0, tokens, layers, heads, head_bytes, dims, pad_bytes=pad)
    # by hand: what a token has after `token` is a row
    after = {"head": heads, "kv": 2, "layer": layers}
    row = head_bytes * math.prod(after[dim] for dim in dims[dims.index("token") + 1 :])
    assert layout.token_bytes == 2 * layers * heads * head_bytes * (row + pad) // row
    units = Units(np.arange(0, tokens, 16), np.full(4, 16), np.full(4, 16))
    held = []
    for layer in range(layers):
        for half in (0, 1):
            for head in range(heads):
                runs = layout.extents(units, layer, half, head=head)
                if not pad or row > head_bytes:  # a run of whole rows has its pads
                    assert runs.size.sum() == tokens * head_bytes
                held += zip(runs.start.tolist(), (runs.start + runs.size).tolist(), strict=True)
    starts, ends = (np.array(column) for column in zip(*sorted(held), strict=True))
    assert (starts[1:] >= ends[:-1]).all() and starts[0] >= 0 and ends[-1] <= layout.bytes
    if dims[-1] == "head":
        apart = np.diff(layout.extents(units, 0, 0, head=0).start)
        assert apart.min() == (row + pad if "kv" in dims[: dims.index("token")] else apart.min())


@pytest.mark.parametrize("name", LAYOUTS)
def test_copies_of_a_fork_move_the_live_bytes(name: str) -> None:
    layout = KvLayout(0, 1024, 2, 4, 256, LAYOUTS[name])
    options = POLICIES["paged"].Options.model_validate({"name": "paged"})
    allocator: Any = POLICIES["paged"](layout, 2, Limits(64, 512), options)
    for request in range(2):
        assert allocator.reserve(request, Demand(20, 0, Prediction(9.0), output=9), 20)
    allocator.able(Forks).fork(0, 1)
    moves = allocator.copying.copies()
    assert [move.tokens for move in moves] == [4]
    copied = traffic.migration(allocator, [], 1, 1 << 20, moves)
    assert copied.size[copied.write].sum() == copied.size[~copied.write].sum()
    assert copied.size[copied.write].sum() == 2 * layout.half_bytes * 4


def test_the_regions_of_the_shipped_pairs() -> None:
    layout = kv_layout(load_device("mlu370-x4"), load_model("deepseek-r1-distill-qwen-7b"))
    assert layout.base % (2 << 20) == 0 and layout.base >= 15_231_233_024
    assert layout.base + layout.bytes <= 0.9 * (24 << 30)
    assert layout.slots == 138_816
    assert layout.half_bytes == 1024


@pytest.mark.parametrize("share", [0.1, 0.55])
def test_weights_that_do_not_fit_are_the_users_error(share: float) -> None:
    with pytest.raises(DescriptionError, match=r"too small for llama-2-7b: the weights take"):
        kv_layout(load_device("mlu370-x4", ["capacity=20GiB"]), load_model("llama-2-7b"), share)
