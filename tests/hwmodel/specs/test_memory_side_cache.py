"""Does a cache before the controller lengthen its write queues, and only where it is described?"""

from __future__ import annotations

from pathlib import Path

import pytest

from hwmodel.description.library import names
from hwmodel.specs.device import load_device


@pytest.mark.parametrize(
    ("card", "settings", "entries"),
    [
        ("a100-80gb", [], 128),  # 8 KiB in bursts of 32 B of two pseudo-channels
        ("strix-halo", [], 256),
        ("strix-halo", ["memory_side_cache.collected=4KiB"], 128),
        ("a100-80gb", ["controller.queue_scope=bank"], 4),  # 64 banks
        ("a100-80gb", ["memory_side_cache=null"], 64),
        ("a100-80gb", ["memory_side_cache.policy=write_through"], 64),
        ("a100-80gb", ["controller.write_queue=48"], 48),
        ("spyre", [], 32),
    ],
)
def test_a_channels_write_queues_hold_what_the_cache_collects(
    card: str, settings: list[str], entries: int
) -> None:
    assert load_device(card, settings).memory.controller.write_queue == entries


def test_one_amount_is_collected_on_every_device() -> None:
    cards = [load_device(name).accelerator for name in names("accelerators")]
    caches = [card.memory_side_cache for card in cards if card and card.memory_side_cache]
    assert {cache.collected for cache in caches} == {8 << 10} and len(caches) >= 15


def test_what_a_cache_collects_is_borrowed_and_the_cache_is_not(tmp_path: Path) -> None:
    text = "based_on: a100-80gb\nmemory: hbm2e-3.2\ncapacity: 4GiB\nchannels: 2\nname: mine\n"
    text += "kind: accelerator\nsummary: x\ndma: {engines: 2}\ncompute: {fp16: 1TFLOPS}\n"
    (file := tmp_path / "mine.yaml").write_text(text)
    assert load_device(str(file)).memory.controller.write_queue == 64
    file.write_text(text + "memory_side_cache: {size: 1MiB}\n")
    borrowed = load_device(str(file))
    assert borrowed.memory.controller.write_queue == 128
    assert "memory_side_cache.collected" in borrowed.assumed
