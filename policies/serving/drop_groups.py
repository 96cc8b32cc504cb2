"""Which cards drop their copies together, which layers each of them has then, and what moves."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Sequence

from hwmodel.description.description import DescriptionError
from hwmodel.specs.link import LinkSpec
from hwmodel.specs.stages import dealt, stages_of
from hwmodel.specs.transformer import TransformerSpec
from policies.memory.distributed_attention import kv_seconds

Group = tuple[int, ...]
"""Cards in the order of their stages; of replicas in stages by the number of each."""
Place = tuple[int, int]
"""A card of a group: its replica, and which stage of it."""


def drop_plan(
    groups: Iterable[Group], weight_bytes: int, wanted_bytes: int, most: int
) -> list[tuple[Group, Group]]:
    """Pairs of groups to merge, in order: the two smallest until merges x weights are enough, all
    are one, or one would have more than `most` cards."""
    heap = [(len(group), group) for group in groups]
    heapq.heapify(heap)
    merges: list[tuple[Group, Group]] = []
    while len(heap) > 1 and len(merges) * weight_bytes < wanted_bytes:
        first, second = heapq.heappop(heap)[1], heapq.heappop(heap)[1]
        if len(first) + len(second) > most:
            break
        merges.append((first, second))
        heapq.heappush(heap, (len(first) + len(second), joined(first, second)))
    return merges


def joined(first: Group, second: Group) -> Group:
    """The cards of both by the middle of the layers that each has, so that it keeps some of them
    and lacks one at most, whose weights count as there."""
    middle = {c: (2 * at + 1) / len(each) for each in (first, second) for at, c in enumerate(each)}
    return tuple(sorted(middle, key=middle.__getitem__))


def pipeline_order(group: Group, stages: int = 1) -> list[Place]:
    """A group's cards in the order of the pipeline that they are, where each replica is so many
    stages: each keeps a part of the layers of its own stage, beside its likes of the others."""
    return [(card, stage) for stage in range(stages) for card in group]


def moved_layers(layers: int, before: Sequence[Place], after: Sequence[Place]) -> list[int]:
    """Layers that leave the card from which most do; where fewer cards have them afterwards, those
    that come to the card to which most do."""
    first, then = (
        [at for at, many in enumerate(dealt(layers, len(group))) for _ in range(many)]
        for group in (before, after)
    )
    away = [
        (layer, before[old] if len(after) > len(before) else after[new])
        for layer, (old, new) in enumerate(zip(first, then, strict=True))
        if before[old] != after[new]
    ]
    if not away:
        return []
    busiest = Counter(card for _, card in away).most_common(1)[0][0]
    return [layer for layer, card in away if card == busiest]


def lacking_bytes(model: TransformerSpec, group: int, stages: int) -> int:
    """Weights that the card of so large a group lacks which lacks most of what it had alone, as one
    of so many stages of a replica."""
    whole, parts = stages_of(model, stages), stages_of(model, group * stages)
    return max(whole[at // group].weight_bytes - part.weight_bytes for at, part in enumerate(parts))


def most_stages(model: TransformerSpec) -> int:
    """Cards of a group at most: with more, one of fewer has no layers with KV."""
    many = 1
    while many < model.layers:
        try:
            stages_of(model, many + 1)
        except DescriptionError:
            break
        many += 1
    return many


def exchanged(
    link: LinkSpec, model: TransformerSpec, tokens: int, layers: Sequence[int], block: int,
    index_bytes: int = 0,
) -> tuple[float, int]:  # fmt: skip
    """(seconds, bytes) of what a request of so many tokens keeps in these layers, over one link:
    KV in pieces of `block` tokens, of layers with a window that of the last tokens, and states.
    index_bytes: of a token in each layer, by which tokens are chosen; in pieces as long."""
    kept: Counter[int] = Counter()
    states = 0
    for layer in layers:
        if model.state is not None and model.state.of(layer) == "state":
            states += 1
            continue
        window = None if model.window is None else model.window.of(layer)
        kept[tokens if window is None else min(tokens, window)] += 1
    seconds, size = 0.0, 0
    for there, many in kept.items():
        seconds += kv_seconds(link, model, there, many, block)
        size += there * many * (model.kv_layer_bytes + index_bytes)
        if index_bytes:
            pieces = -(-there // block) * many
            seconds += link.seconds(min(block, there) * index_bytes, pieces)
    if states:
        state = next(kind.state.bytes() for kind in model.kinds if kind.state is not None)
        seconds += link.seconds(state, states)
        size += state * states
    return seconds, size
