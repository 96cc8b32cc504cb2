"""In-line ECC as traffic: closed forms by stream, and mistakes."""

from __future__ import annotations

import re

import numpy as np
import pytest

from hwmodel.description.description import DescriptionError
from hwmodel.measure.open_loop import OpenLoop
from hwmodel.specs.device import load_device
from tests.hwmodel.memories import spec

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


def test_off_is_what_it_was() -> None:
    assert run(APART, 0, controller__inline_ecc=0).total("requests") == COUNT


@pytest.mark.parametrize(
    ("name", "settings", "answer"),
    [
        (NAME, ["controller.inline_ecc=8"], "expected partial_write: read_modify_write"),
        (NAME, ["controller.inline_ecc=7"], "8, 16 or 32"),
        (NAME, ["controller.inlineecc=8"], "did you mean 'inline_ecc'?"),
        (
            "mlu370-x4",
            ["controller.inline_ecc=8", "controller.partial_write=read_modify_write"],
            "name the memory",
        ),
    ],
)
def test_a_mistake_is_answered(name: str, settings: list[str], answer: str) -> None:
    with pytest.raises(DescriptionError, match=re.escape(answer)):
        load_device(name, settings)
