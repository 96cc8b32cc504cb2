"""Are descriptors those that the addresses of both ends make, one by one?"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwmodel.description.description import DescriptionError
from hwmodel.specs.kv_order import LAYOUTS, Dims
from policies.transfers.pieces import HOST_LAYOUTS, KNOWN_LAYOUTS, End, pages, pieces

LAYERS, HALVES, HEAD_BYTES = 3, 2, 4


def address(end: End, layer: int, kv: int, head: int, token: int) -> int:
    """Of the numbers of one head, by counting through the dimensions."""
    index = {
        "layer": layer, "kv": kv, "head": end.first_head + head,
        "unit": int(end.table[token // end.block]), "token": token % end.block,
    }  # fmt: skip
    size = {
        "layer": LAYERS, "kv": HALVES, "head": end.heads,
        "unit": int(end.table.max()) + 2, "token": end.block,
    }  # fmt: skip
    place = 0
    for dim in end.dims:
        place = place * size[dim] + index[dim]
    return place * HEAD_BYTES


@st.composite
def ends(draw: st.DrawFn) -> tuple[End, End, int, int]:
    """(source, target, tokens, heads that move)."""
    names = sorted(KNOWN_LAYOUTS)
    heads = draw(st.integers(1, 3))
    tokens = draw(st.integers(1, 20))
    found = []
    for _ in range(2):
        block = draw(st.sampled_from([1, 2, 3, 4, 8]))
        held = draw(st.integers(heads, 4))
        count = -(-tokens // block) + 8
        table = draw(st.permutations(range(count)))
        if draw(st.booleans()):
            table = sorted(table)
        found.append(
            End(
                KNOWN_LAYOUTS[draw(st.sampled_from(names))], block, np.array(table, np.int64),
                held, draw(st.integers(0, held - heads)),
            )
        )  # fmt: skip
    return found[0], found[1], tokens, heads


@settings(max_examples=150, deadline=None)
@given(case=ends())
def test_pieces_cover_every_byte_once_and_are_contiguous_at_both_ends(
    case: tuple[End, End, int, int],
) -> None:
    """Without merging: runs of numbers that lie behind one another at both ends are no longer than
    the pieces say, within a chunk of tokens that both blocks divide."""
    source, target, tokens, heads = case
    step = math.gcd(source.block, target.block)
    moved = -(-tokens // step) * step
    found = pieces(
        source, target, tokens=tokens, heads=heads, layers=LAYERS, halves=HALVES,
        head_bytes=HEAD_BYTES,
    )  # fmt: skip
    assert found.bytes == moved * heads * LAYERS * HALVES * HEAD_BYTES
    expected = 0
    for chunk in range(moved // step):
        items = sorted(
            (address(source, *at), address(target, *at))
            for at in itertools.product(
                range(LAYERS), range(HALVES), range(heads), range(chunk * step, (chunk + 1) * step)
            )
        )
        joined = sum(
            (b[0] - a[0], b[1] - a[1]) == (HEAD_BYTES, HEAD_BYTES)
            for a, b in itertools.pairwise(items)
        )
        expected += len(items) - joined
    assert found.descriptors == expected


def both(kind: str, merges: str, dims: Dims = LAYOUTS["layer_kv_token"], **more: int) -> int:
    end = End(dims, 16, pages(kind, 64), 1)
    shape = {"layers": 1, "halves": 1, "head_bytes": 64, "heads": 1}
    return pieces(end, end, tokens=1024, merges=merges, **shape, **more).descriptors  # type: ignore[arg-type]


def test_descending_runs_merge_only_after_sorting() -> None:
    assert both("descending", "in_order") == 64
    assert both("descending", "any_order") == 1


def test_long_pieces_are_cut() -> None:
    assert both("fresh", "in_order") == 1
    assert both("fresh", "in_order", largest=10_000) == 7  # 65,536 bytes


def test_a_host_that_keeps_pages_first_takes_a_token_and_layer_at_a_time() -> None:
    """SGLang's page_first has layers inside tokens: a piece is K of one token in one layer."""
    device = End(LAYOUTS["layer_kv_token"], 16, pages("fresh", 4), 8)
    host = End(HOST_LAYOUTS["page_first"], 16, pages("fresh", 4), 8)
    shape = {"tokens": 64, "heads": 8, "layers": 10, "halves": 2, "head_bytes": 256}
    found = pieces(device, host, merges="any_order", **shape)
    assert (found.descriptors, found.sizes.tolist()) == (64 * 10 * 2, [8 * 256])


def test_a_table_that_is_too_short_is_refused() -> None:
    end = End(LAYOUTS["layer_kv_token"], 16, pages("fresh", 4), 1)
    with pytest.raises(DescriptionError, match="5 blocks of 16 tokens move; the table has 4"):
        pieces(end, end, tokens=65, heads=1, layers=1, halves=1, head_bytes=64)


@pytest.mark.parametrize("kind", ["", "0", "old", "-3"])
def test_other_pages_are_refused(kind: str) -> None:
    with pytest.raises(DescriptionError, match="expected fresh, aged, descending"):
        pages(kind, 4)
