"""In-line ECC as traffic: closed forms by stream, and mistakes."""

from __future__ import annotations

import numpy as np
import pytest

from hwmodel.description.description import DescriptionError
from hwmodel.kernel.memory import Descriptors, SystemResult, simulate_system
from hwmodel.measure.bandwidth import measure
from hwmodel.measure.issued import Issuer
from hwmodel.measure.open_loop import OpenLoop
from hwmodel.oracle.audit import audit
from hwmodel.oracle.command_log import CODE
from hwmodel.specs.device import load_device
from tests.hwmodel.memories import spec
from tests.hwmodel.one_channel import simulate_channel

NAME = "lpddr5-6400-x16"
ON = {"controller__inline_ecc": 8, "controller__partial_write": "read_modify_write"}
COUNT = 4096


def run(address: np.ndarray, kind: int, **more: object) -> OpenLoop:
    found = OpenLoop(spec(NAME, **{**ON, **more}))
    found.feed(0, address.astype(np.int64), np.full(len(address), kind, np.int64))
    found.finish()
    return found


IN_ORDER = np.arange(COUNT) * 32
APART = np.random.default_rng(1).permutation(1 << 18)[:COUNT] * 1024


@pytest.mark.parametrize(
    ("address", "kind", "requests", "rmw"),
    [
        (IN_ORDER, 0, COUNT + COUNT // 8, 0),  # a burst of check bytes serves eight of data
        (IN_ORDER, 1, COUNT + COUNT // 8, 0),  # and is written whole
        (APART, 0, 2 * COUNT, 0),
        (APART, 1, 2 * COUNT, COUNT),  # an eighth of the check bytes: read, then written
        (APART, 2, 2 * COUNT, 2 * COUNT),
    ],
)
def test_traffic_of_checks_is_what_the_stream_leaves_to_share(
    address: np.ndarray, kind: int, requests: int, rmw: int
) -> None:
    found = run(address, kind, controller__write_forwarding=False)
    assert found.total("requests") == requests and found.total("rmw_reads") == rmw
    assert found.checks == requests - COUNT


CARD = ["controller.partial_write=read_modify_write", "controller.write_forwarding=false"]


def card(protects: int, kind: bool, extents: np.ndarray, size: int) -> SystemResult:
    """Extents of one size, dealt to the engines of a card in turn."""
    made = [*CARD, f"controller.inline_ecc={protects}", "capacity=21GiB"]
    device = load_device("mlu370-x4", made)
    engine = np.arange(len(extents)) % device.dma.engines
    every = np.full(len(extents), size), np.full(len(extents), kind)
    return simulate_system(device, Descriptors(engine, extents, *every))


@pytest.mark.parametrize("protects", [8, 16])
@pytest.mark.parametrize("write", [False, True])
@pytest.mark.parametrize(
    ("extents", "size", "requests"),
    [
        (np.arange(512) * 4096, 4096, 8),  # whole blocks of 512 B: two bursts of checks, or one
        (np.random.default_rng(2).permutation(1 << 20)[:2048] * 16384, 64, 1),
    ],
)
def test_engines_ask_for_the_checks_of_each_request(
    extents: np.ndarray, size: int, requests: int, write: bool, protects: int
) -> None:
    plain, found = (card(p, write, extents, size) for p in (0, protects))
    bursts = len(extents) * size // 32
    checks = len(extents) * requests * max(1, size // requests // (32 * protects))
    read_first = checks if write and size == 64 else 0
    assert plain.bursts == bursts and found.bursts == bursts + checks
    reads, writes = (
        sum(found.commands[name] for name in names) for names in (("RD", "RDA"), ("WR", "WRA"))
    )
    assert (reads, writes) == ((read_first, bursts + checks) if write else (bursts + checks, 0))
    assert found.bytes_measured == found.total_bytes == bursts * 32
    assert 0.3 < found.gbps / plain.gbps < 1  # the window, not DRAM, binds short reads


def test_a_card_reads_in_order_at_about_the_share_that_its_channel_does() -> None:
    """Eight of nine bursts are data; checks lie in rows of their own."""
    shares = []
    for name, more in ((NAME, []), ("mlu370-x4", ["capacity=21GiB"])):
        plain, found = (
            measure(load_device(name, [*CARD, f"controller.inline_ecc={p}", *more]), "sequential")
            for p in (0, 8)
        )
        shares.append(found["bandwidth_gbps"] / plain["bandwidth_gbps"])
    assert max(shares) < 8 / 9
    assert shares[1] == pytest.approx(shares[0], abs=0.1)


def test_on_die_ecc_makes_masked_writes_of_one_bank_group_wait_for_the_read_inside() -> None:
    """DDR5: tCCD_L_WR for a second write that is masked, tCCD_L_WR2 for a whole one; where eight
    groups take turns neither binds. Auditor and closed form to the tick."""
    memory = spec("ddr5-4800-x32", controller__refresh="none")
    for group, kind, apart in ((1, 1, 24), (1, 2, 48), (8, 1, 8), (8, 2, 8)):
        address = np.arange(32) * (512 if group == 1 else 64)
        at_once, kinds = np.zeros(32, np.int64), np.full(32, kind)
        found = simulate_channel(memory, at_once, address.astype(np.int64), kinds)
        columns = np.isin(found.commands.command, [CODE["WR"], CODE["MWR"]])
        gaps = np.diff(found.commands.tick[columns])
        assert set(gaps[8:].tolist()) == {apart}
        assert audit(memory, found.commands) == []


def test_requests_of_a_card_with_checks_are_not_exported() -> None:
    made = load_device("mlu370-x4", [*CARD, "controller.inline_ecc=8", "capacity=21GiB"])
    with pytest.raises(DescriptionError, match="expected 0 where requests are exported"):
        Issuer(made)
