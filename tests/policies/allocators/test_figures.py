"""Do arithmetic and addresses give what they gave: of groups of layers, sparse attention, states,
regions of KV, and bounds of buckets?

A change that is meant to move them writes `figures.json` anew, and prints what has moved:

    python -m tests.policies.allocators.test_figures
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from dataclasses import astuple
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hwmodel.description.description import DescriptionError
from hwmodel.specs.device import load_device
from hwmodel.specs.kv_order import LAYOUTS
from hwmodel.specs.transformer import load_model
from policies.allocators.attention_options import KINDS
from policies.allocators.buckets import BALANCES, Buckets
from policies.allocators.hybrid import Compact, TwoPools, Unified
from policies.allocators.kv_apart import Parts
from policies.allocators.kv_frames import CardFrames, all_of_blocks, in_frames
from policies.allocators.kv_groups import kv_groups
from policies.allocators.kv_layout import KvLayout, Units, kv_layout, space_of
from policies.allocators.kv_sparse import Sparse
from policies.allocators.partition import best_partition, unused_share
from policies.allocators.registry import POLICIES, refusal
from policies.allocators.state_places import behind, in_block
from policies.placements.card_memories import CardMemories
from policies.placements.placements import PLACEMENTS
from tests.policies.records import Records

LENGTHS = np.array([0, 1, 15, 39, 40, 41, 128, 129, 700, 4095, 4096, 9000])
ROWS = np.array([1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6])
GIB = 1 << 30


def groups(name: str, kind: Any) -> Any:
    """Of a model with windows."""
    made = kv_groups(load_model(name), kind)
    assert made is not None
    spans = [made.span(start, tokens) for start in (0, 100, 5000) for tokens in (1, 300, 2000)]
    slots = made.slots_of(LENGTHS)
    return (
        astuple(made), made.near, made.kinds, slots, made.tokens_in(slots + 3),
        made.read(LENGTHS), made.verified(LENGTHS, ROWS), made.copied(700), spans,
    )  # fmt: skip


def sparse(**given: Any) -> Any:
    made = Sparse(**given)
    runs = [
        made.runs(stored, request, 1, head)
        for stored in (5, 64, 100, 999) for request in (0, 3) for head in (0, 1)
    ]  # fmt: skip
    pairs = [made.pairs(start, tokens) for start in (0, 60, 500) for tokens in (1, 30, 90)]
    steps = made.steps(LENGTHS, 1), made.steps(LENGTHS, 4)
    return (
        made.read(LENGTHS),
        made.indexed(LENGTHS),
        steps,
        made.verified(LENGTHS, ROWS),
        pairs,
        runs,
    )


def chooses(name: str) -> Any:
    """What a kind of attention keeps and reads."""
    model, kind = load_model("llama-3.1-8b"), KINDS[name](name=name)
    more = KINDS["budget"].model_validate({"name": "budget", "frees": "slots", "tokens": 64})
    served = (kind.served(model).window, more.served(model).window, more.sparse(model, 3))
    return [str(each) for each in (*served, kind.sparse(model, 3))]


def states(name: str) -> Any:
    """What a memory holds of a hybrid model."""
    model, lengths = load_model(name), [900, 40_000, 3_000] * 60
    drafter = {"drafter": (2, 4 * model.kv_heads * model.head_dim)}
    pools: list[Any] = [
        Unified(model), Unified(model, "align", 2, beside=1), Unified(model, "all"),
        Unified(model, drafts=3, **drafter), TwoPools(model), TwoPools(model, 0.5, 5, 2, 16),
        Compact(model, 40), Compact(model, 8, 64, 3),
    ]  # fmt: skip
    found: list[Any] = [[pool.held(GIB * many, lengths) for many in (1, 8)] for pool in pools]
    found += [[pool.held(8 * GIB, lengths).waste for pool in pools]]
    for pool in pools[:4]:
        found += [pool.state, pool.page, pool.block, pool.drafter_block, pool.possible, pool.group]
        found += [pool.padding, pool.groups, pool.blocks(GIB), pool.needs(5000), pool.pages(5000)]
    for pool in pools[4:]:
        found += [pool.apart(GIB), pool.running(GIB), pool.copies, pool.commits]
    return [*found, *(pool.even(lengths) for pool in pools[4:6])]


def region(name: str, device: str, kv: str | None = None, **given: Any) -> Any:
    """Where the KV of a model lies on a device."""
    model = load_model(name).stored_as(None, kv)
    made = kv_layout(load_device(device), model, **given)
    facts = made.base, made.slots, made.bytes, made.token_bytes, made.whole_token_bytes, made.tokens
    return *facts, made.layer_index_bytes, made.passes, str(space_of(model, made))


def plain(value: Any) -> Any:
    """Every whole number of a value, and its others to six digits."""
    match value:
        case dict():
            return plain([*value.items()])
        case list() | tuple() | np.ndarray() | range():
            return [plain(each) for each in value]
        case float():
            return f"{value:.6g}"
        case _:
            return str(value)


def room(kind: Callable[[], Any]) -> str:
    """A checksum of what it gives, or why there is none."""
    try:
        return f"{zlib.crc32(json.dumps(plain(kind())).encode()):08x}"
    except DescriptionError as error:
        return error.message


def memories(name: str) -> Any:
    """The region in several memories."""
    device = load_device("hbm4-lpddr6")
    card = CardMemories(device, PLACEMENTS[name].Options.model_validate({"name": name}))
    return region("llama-2-7b", "hbm4-lpddr6", card=card), region(
        "llama-2-7b", "hbm4-lpddr6", card=card, tokens=640
    )


def extents(dims: str, kv: str | None = None, pad: int = 0) -> Any:
    """Byte runs of some units in a layout, of a format, and with states among them."""
    model = load_model("llama-2-7b").model_copy(update={"layers": 2, "heads": 8, "kv_heads": 4})
    model, order = model.stored_as(None, kv), LAYOUTS[dims]
    made = kv_layout(load_device("mlu370-x4"), model, dims=order, tokens=4096, pad_bytes=pad)
    units = Units(np.array([160, 40, 0]), np.array([16, 8, 5]), np.array([16, 8, 16]))
    found: list[Any] = [
        room(partial(made.extents, units, layer, half, first, last, head))
        for layer in (0, 1) for half in (0, 1, None) for head in (0, 3, None)
        for first, last in ((0, None), (3, 26))
    ]  # fmt: skip
    one, two = np.array([1, 2]), np.zeros(2, np.int64)
    parts = Parts(16 * one, 16 + two, one, 5 * one, np.arange(2), 1 + two, np.arange(2))
    found.append(room(partial(made.runs, parts, 1)))
    if made.apart is None:
        found += [behind(made, 32, 64, 40, 50, 100, 3000), in_block(made, 5, 16, 1, 700)]
        found += [in_block(made, 5, 16, 3, 700)]
    return found


def frames(stages: int) -> Any:
    """Planes of frames when weights are dropped."""
    frame, layers = 4096, range(8 // stages * (stages - 1), 8)
    whole, own = in_frames(KvLayout(160 * frame, 2112, 8, 2, 64), frame)
    card = own.remapped(layers, 80 * frame, own.held.shape[1], own.room(len(layers), 80 * frame))
    stays = card.stays(own, 66)
    kept = all_of_blocks(stays, card.region(whole).slots, 24)
    again: CardFrames = card.remapped(layers[:1], 0, 0, card.room(1, 0))
    return card, card.frames(), astuple(card.region(whole))[:5], stays, kept, again


def bounds() -> Any:
    """Of buckets, by each balance, as lengths come, and what they leave unused."""
    rng = np.random.default_rng(7)
    found: list[Any] = []
    for nth, balance in enumerate(BALANCES):
        lengths = rng.integers(1, 300, 90)
        levels = [0.3, 0.7, 1.0] if nth == 3 else []
        made = Buckets(
            3, 250, 20, 6, 8, levels=levels, balance=balance, delay_s=2.0 * (nth % 2), most=9 + nth
        )
        for at, length in enumerate(lengths.tolist()):
            found += [made.observe(length), made.clock(at / 3), made.bounds, made.find(length)]
        best = best_partition(lengths, 4, 8)
        share = unused_share(lengths, list(best.bounds[:2]), 400)
        found += [made.refreshes, f"{made.due_s}", best, share]
    return found


def options() -> Any:
    """What a study may not search."""
    values = (0, 1, 1e9, "x", [1, 2, 3])
    return [
        [refusal(kind, option, value) for option in (*kind.searched, "none") for value in values]
        for kind in POLICIES.values()
    ]


HYBRID = ("falcon-h1-7b", "jamba-v0.1", "kimi-linear-48b-a3b", "qwen3.5-9b", "lfm2-1.2b")
SUBJECTS: dict[str, Callable[[], Any]] = {
    **{
        f"{name}, {kind}": partial(groups, name, kind)
        for name in ("gemma-3-12b", "gpt-oss-20b", "mistral-7b-v0.1")
        for kind in ("blocks", "ring", "full")
    },
    **{
        f"sparse {given}": partial(sparse, **given)
        for given in (
            {"tokens": 64}, {"tokens": 64, "page": 16, "apart": True}, {"tokens": 40, "page": 8,
            "choice": "clustered", "run": 24, "recent": 16}, {"tokens": 50, "choice": "recency",
            "recent": 20, "whole_prompts": False}, {"tokens": 64, "always": True},
            {"tokens": 16, "page": 16}, {"tokens": 64, "choice": "clustered", "seed": (4, 2)},
        )
    },
    **{name: partial(chooses, name) for name in KINDS},
    **{name: partial(states, name) for name in HYBRID},
    "7b": partial(region, "llama-2-7b", "mlu370-x4"),
    "8b, less": partial(region, "llama-3.1-8b", "h200", gpu_memory_utilization=0.5),
    "8b, kept": partial(region, "llama-3.1-8b", "h200", kept_bytes=9 << 30, beside_bytes=100),
    "8b, padded": partial(region, "llama-3.1-8b", "h200", pad_bytes=64),
    "8b, oaken": partial(region, "llama-3.1-8b", "h200", kv="oaken"),
    "8b, oaken, padded": partial(region, "llama-3.1-8b", "h200", kv="oaken", pad_bytes=64),
    "8b, tokens": partial(region, "llama-3.1-8b", "h200", tokens=1000),
    "8b, too many": partial(region, "llama-3.1-8b", "h200", tokens=1 << 40),
    "8b, no room": partial(region, "llama-3.1-8b", "h200", gpu_memory_utilization=0.1),
    "8b, no room beside": partial(region, "llama-3.1-8b", "h200", kept_bytes=125 << 30),
    "windows": partial(region, "gemma-3-12b", "h200"),
    "groups": lambda: region(
        "gemma-3-12b", "h200", groups=kv_groups(load_model("gemma-3-12b"), "blocks")
    ),
    "index": partial(
        region, "llama-3.1-8b", "h200", sparse=Sparse(64, index_bytes=132, padding=9)
    ),
    **{f"memories {name}": partial(memories, name) for name in ("apart", "interleaved")},
    **{f"extents {dims}": partial(extents, dims) for dims in LAYOUTS},
    **{f"padded {dims}": partial(extents, dims, pad=48) for dims in LAYOUTS},
    **{
        f"{kv} {dims}": partial(extents, dims, kv)
        for dims in LAYOUTS for kv in ("oaken", "oaken_behind", "kvquant", "atom")
    },
    **{f"{stages} stages": partial(frames, stages) for stages in (1, 2, 4)},
    "bounds": bounds, "options": options,
}  # fmt: skip


RECORDS = Records(
    Path(__file__).with_name("figures.json"), SUBJECTS, lambda name: room(SUBJECTS[name])
)


@pytest.mark.parametrize("name", SUBJECTS)
def test_it_gives_what_it_gave(name: str) -> None:
    RECORDS.check(name)


if __name__ == "__main__":
    RECORDS.write()
