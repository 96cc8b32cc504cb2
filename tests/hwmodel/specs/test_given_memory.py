"""Is a device whose memory is given usable for serving, and refused in one line elsewhere?"""

from __future__ import annotations

from pathlib import Path

import pytest

from hwmodel.description.description import DescriptionError
from hwmodel.specs.device import load_device

FILE = """kind: accelerator
name: mine
summary: x
based_on: a100-80gb
memory: given
given: {bandwidth: 500GB/s, efficiency: 0.8}
capacity: 24GiB
compute: {fp16: 100TFLOPS, bf16: 100TFLOPS}
"""


def described(folder: Path, old: str = "", new: str = "") -> str:
    file = folder / "mine.yaml"
    file.write_text(FILE.replace(old, new, 1))
    return str(file)


def test_it_has_a_peak_and_a_capacity_and_borrows_nothing_of_a_simulated_one(
    tmp_path: Path,
) -> None:
    device = load_device(described(tmp_path))
    assert device.peak_gbps == 500 and device.capacity_bytes == 24 << 30
    assert not {"dma", "controller", "interleave"} & set(device.config["accelerator"])
    assert device.accelerator is not None and device.accelerator.compute.overlap == 1.0
    for ask in ("memory", "dma"):
        with pytest.raises(DescriptionError, match="bandwidth is given, not simulated"):
            getattr(device, ask)
    faster = load_device(described(tmp_path), ["given.bandwidth=1TB/s"])
    assert faster.peak_gbps == 1000 and faster.digest != device.digest
