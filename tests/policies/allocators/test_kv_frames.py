"""Does a card that drops layers keep every frame once, and every block at its address?"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwmodel.description.description import DescriptionError
from hwmodel.kernel.memory import Descriptors
from hwmodel.specs.kv_order import LAYOUTS
from hwmodel.specs.stages import dealt
from policies.allocators.kv_frames import CardFrames, in_frames
from policies.allocators.kv_layout import KvLayout
from policies.memory.mapped import at_frames

FRAME = 4096
WEIGHTS = 160 * FRAME
"""Of 8 layers of 20 frames; 16 planes, 32 tokens a frame."""
REGION = KvLayout(WEIGHTS, 2048 + 64, layers=8, kv_heads=2, head_bytes=64)
WHOLE, OWN = in_frames(REGION, FRAME)


def everything(card: CardFrames) -> list[int]:
    return sorted([*card.held.ravel().tolist(), *card.spare.tolist()])


def halved() -> CardFrames:
    """The second of two stages, whose blocks come after the first's."""
    return OWN.remapped(range(4, 8), WEIGHTS // 2, OWN.held.shape[1], OWN.room(4, WEIGHTS // 2))


def test_a_region_has_whole_frames_in_each_plane() -> None:
    assert WHOLE.slots == 2112 and OWN.held.shape == (16, 66)
    assert in_frames(replace(REGION, slots=2112 + 63), FRAME)[0].slots == 2112


def test_dropped_weights_become_slots_in_whole_frames() -> None:
    card = halved()
    slots = card.region(WHOLE).slots
    closed = (WHOLE.bytes + WEIGHTS // 2) // (WHOLE.token_bytes // 2)
    assert closed - 64 < slots <= closed and slots == 2 * WHOLE.slots + 80 // 8 * 32
    assert card.held.size + len(card.spare) == OWN.held.size + 80


@given(st.integers(2, 8), st.integers(0, 7), st.integers(0, 40), st.integers(0, 160))
def test_every_frame_is_somewhere_once(many: int, stage: int, first: int, stay: int) -> None:
    layers = np.cumsum((0, *dealt(8, many)))
    stage %= many
    mine = range(int(layers[stage]), int(layers[stage + 1]))
    card = OWN.remapped(mine, stay * FRAME, first, OWN.room(len(mine), stay * FRAME))
    added = range(stay * FRAME, WEIGHTS, FRAME)
    assert everything(card) == sorted([*everything(OWN), *added])
    again = card.remapped(mine[:1], 0, 0, card.room(1, 0))
    assert everything(again) == sorted([*everything(card), *range(0, stay * FRAME, FRAME)])
    assert len(set(again.frames().virtual)) == len(everything(again))


def test_layers_that_stay_keep_their_addresses_and_others_fill_the_tail() -> None:
    own, card, many = OWN, halved(), OWN.held.shape[1]
    assert (card.held[:, many : 2 * many] == own.held[8:]).all()
    assert set(card.held[:, :many].ravel()) == set(own.held[:8].ravel())  # the other group's blocks
    others = {*card.held[:, :many].ravel().tolist(), *card.held[:, 2 * many :].ravel().tolist()}
    assert others | set(card.spare.tolist()) == {
        *own.held[:8].ravel().tolist(), *range(WEIGHTS // 2, WEIGHTS, FRAME)
    }  # fmt: skip


def test_the_memory_sees_blocks_where_they_were() -> None:
    card = halved()
    region = card.region(WHOLE)

    def bytes_of(layout: KvLayout, start: int, layer: int) -> Any:
        units = layout.unit_of(start, 40, 64, 0)
        runs = layout.extents(units, layer, 0)
        writes = np.zeros(len(runs.start), np.bool_)
        return Descriptors(np.zeros(len(runs.start), np.int64), runs.start, runs.size, writes)

    before = bytes_of(WHOLE, 100, 5)  # of the second group, in a layer that stays
    after = at_frames(bytes_of(region, WHOLE.slots + 100, 1), card)
    assert after.start[0] == before.start[0] and after.size.sum() == before.size.sum()
    first = at_frames(bytes_of(region, 0, 0), card)
    assert first.start[0] == card.held.ravel()[0] + (first.start[0] - region.base) % FRAME
    weights = Descriptors(*(np.array([each]) for each in (0, 64, 128, False)))
    found = at_frames(weights, card)
    assert (found.start[0], found.write.any()) == (64, False)
    assert at_frames(weights._replace(write=~weights.write), card).write.all()
    tail = at_frames(bytes_of(region, 2 * WHOLE.slots, 0), card)
    assert tail.start[0] < WEIGHTS  # a frame of dropped weights


def test_the_kernel_joins_frames_that_follow_at_virtual_addresses() -> None:
    card = halved()
    known = card.frames()
    plane = card.held[3]
    virtual = known.addresses(plane)
    assert (np.diff(virtual) == FRAME).all()
    assert len(set(known.addresses(np.array(everything(card))).tolist())) == len(everything(card))


@pytest.mark.parametrize(("layout", "says"), [
    (replace(REGION, slots=0), "choose a smaller one"),
    (replace(REGION, dims=LAYOUTS["block_layer_kv_token"]), "begins with layer, or frame: null"),
])  # fmt: skip
def test_a_region_without_planes_of_frames_is_refused(layout: KvLayout, says: str) -> None:
    with pytest.raises(DescriptionError, match=says):
        in_frames(layout, FRAME)
