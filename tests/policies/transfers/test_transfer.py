"""Do links cost what their law says, and do ranks move the heads that they share?"""

from __future__ import annotations

import numpy as np
import pytest

from hwmodel.description.description import DescriptionError
from hwmodel.description.library import names
from hwmodel.specs.kv_order import LAYOUTS
from hwmodel.specs.link import LinkSpec, load_link
from hwmodel.specs.transformer import load_model
from policies.transfers.measured_transfers import compare_transfers, load_transfers
from policies.transfers.pieces import pages
from policies.transfers.transfer import Index, TransferEnd, transfer

MODEL = load_model("llama-3.1-8b")  # 32 layers, 8 KV heads of 256 B


def link(**changes: object) -> LinkSpec:
    """1 us a transfer, 2 us a descriptor, 1 GB/s, unless changed."""
    plain: dict[str, object] = {
        "kind": "link", "name": "mine", "latency": "1us",
        "paths": [{"post": "2us", "bandwidth": "1GB/s"}],
    }  # fmt: skip
    return LinkSpec.model_validate(plain | changes)


def server(cards: int = 1, layout: str = "layer_kv_token", kind: str = "fresh") -> TransferEnd:
    return TransferEnd(LAYOUTS[layout], 16, pages(kind, 64), cards)


def cost(spec: LinkSpec, *, both_ways: bool = False, **counts: int) -> float:
    """Microseconds for so many pieces of s1000, s4000 bytes."""
    sizes = np.array([int(name[1:]) for name in counts])
    return spec.cost(sizes, np.array(list(counts.values())), both_ways).total_ns / 1e3


def test_posting_and_bytes_overlap_or_follow_one_another() -> None:
    assert cost(link(), s1000=10) == 1 + 20  # posting; 10 us of bytes beside it
    assert cost(link(), s4000=10) == 1 + 40  # bytes
    in_turn = [{"post": "2us", "bandwidth": "1GB/s", "overlap": "sum"}]
    assert cost(link(paths=in_turn), s4000=10) == 1 + 20 + 40
    assert cost(link(streams=4), s1000=10) == 1 + 10


def test_small_pieces_take_a_path_of_their_own() -> None:
    small, large = {"post": "5us", "bandwidth": "1GB/s"}, {"post": "0ns", "bandwidth": "2GB/s"}
    paths = [{"below": "2KB", **small}, large]
    assert cost(link(paths=paths), s1000=10, s4000=10) == 1 + 50 + 20


def test_two_directions_share_what_the_link_has() -> None:
    assert cost(link(both_ways="1.5GB/s"), both_ways=True, s4000=3) == pytest.approx(1 + 16)
    assert cost(link(), both_ways=True, s4000=3) == 1 + 12


def test_the_way_back_has_its_own_law_where_one_is_described() -> None:
    assert link().back == link()
    slower = link(paths_back=[{"post": "3us", "bandwidth": "1GB/s"}])
    assert cost(slower, s1000=10) == 1 + 20
    assert cost(slower.back, s1000=10) == 1 + 30
    assert slower.back.back == slower
    with pytest.raises(ValueError, match="paths_back: the last takes every size"):
        link(paths_back=[{"below": "2KB", "post": "3us", "bandwidth": "1GB/s"}])


@pytest.mark.parametrize(
    ("paths", "said"),
    [
        ([{"below": "2KB", "post": "0ns", "bandwidth": "1GB/s"}], "the last takes every size"),
        ([{"post": "0ns", "bandwidth": "1GB/s"}] * 2, "below must grow"),
    ],
)
def test_paths_that_leave_sizes_out_are_refused(paths: list[dict[str, str]], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        link(paths=paths)


def test_ranks_move_the_heads_that_they_share() -> None:
    """4 cards to 8: each sender has two heads for two receivers; 8 to 4 likewise, one each."""
    whole = transfer(link(), MODEL, 1024, server(), server())
    assert whole.pieces.bytes == 1024 * MODEL.kv_token_bytes
    for cards in ((4, 8), (8, 4), (2, 2), (1, 4)):
        moved = transfer(link(), MODEL, 1024, *(server(each) for each in cards))
        assert moved.ranks == cards[0]
        assert moved.pieces.bytes == whole.pieces.bytes // cards[0]


def test_indexers_are_regions_beside() -> None:
    """As vLLM issue 55434 counts them: 78 layers of latents and 23 of indexers are 101 regions."""
    model = load_model("deepseek-v3").model_copy(update={"layers": 78})
    merging = link(merges="in_order")
    moved = transfer(merging, model, 1024, server(), server(), Index(23, 132))
    assert moved.pieces.descriptors == 101
    assert moved.pieces.bytes == 1024 * (model.kv_token_bytes + 23 * 132)


@pytest.mark.parametrize(
    ("model", "cards", "said"), [("gpt-oss-20b", 1, "windows"), ("llama-3.1-8b", 3, "cannot split")]
)
def test_what_cannot_be_counted_is_refused(model: str, cards: int, said: str) -> None:
    with pytest.raises(DescriptionError, match=said):
        transfer(link(), load_model(model), 64, server(cards), server())


@pytest.mark.parametrize("name", names("links"))
def test_every_link_says_who_measured_it(name: str) -> None:
    assert load_link(name).sources


def test_no_agreement_with_published_transfers_is_lost() -> None:
    found = compare_transfers(load_transfers("published-transfers"))
    assert [item.cell.what for item in found if item.lost] == []
    within = [item.cell for item in found if item.verdict == "within"]
    assert [cell.what for cell in within if not cell.agrees] == []
