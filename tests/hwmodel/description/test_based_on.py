"""Is what no data sheet says borrowed, as assumed, and nothing else?"""

from __future__ import annotations

from pathlib import Path

import pytest

from hwmodel.description.description import DescriptionError
from hwmodel.specs.device import load_device

FACTS = """\
kind: accelerator
name: mine
summary: a card
based_on: mlu370-x4
memory: lpddr5-6400-x16
channels: 8
capacity: 8GiB
dma: {engines: 4, window: 4KiB}
compute: {fp16: 10TFLOPS}
"""


def write(folder: Path, text: str = FACTS) -> str:
    (folder / "mine.yaml").write_text(text)
    return str(folder / "mine.yaml")


def test_what_is_missing_is_as_the_other_has_it_and_assumed(tmp_path: Path) -> None:
    device = load_device(write(tmp_path))
    assert device.accelerator is not None
    dma, compute = device.accelerator.dma, device.accelerator.compute
    assert (dma.engines, dma.window, dma.request, dma.strided) == (4, 4096, 512, True)
    assert (compute.fp16, compute.decode_efficiency) == (10e12, 0.5)
    assert device.accelerator.channel_hash == "rotate"
    assert device.memory.controller.refresh == "per_bank"
    assumed = {path for path in device.assumed if not path.startswith("memory:")}
    assert {"interleave", "channel_hash", "dma.request", "compute.overlap"} <= assumed
    assert "controller.scheduler" in assumed and "dma.window" not in assumed


def test_facts_are_not_borrowed(tmp_path: Path) -> None:
    device = load_device(write(tmp_path))
    assert device.accelerator is not None
    assert (device.accelerator.compute.bf16, device.accelerator.host) == (None, None)
    text = FACTS.replace("channels: 8\n", "").replace("engines: 4, ", "")
    with pytest.raises(DescriptionError) as error:
        load_device(write(tmp_path, text))
    lines = str(error.value).splitlines()
    assert [line.split(": ")[1] for line in lines] == ["channels", "dma.engines"]


def test_overrides_come_first(tmp_path: Path) -> None:
    device = load_device(write(tmp_path), ["dma.request=1KiB", "based_on=a100-80gb"])
    assert device.accelerator is not None
    assert (device.accelerator.dma.request, device.accelerator.interleave) == (1024, 1024)
    assert "dma.request" not in device.assumed


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("mlu370", "did you mean 'mlu370-x4'?"),
        ("lpddr5-6400-x16", "no shipped accelerator"),
        ("./mine.yaml", "mine.yaml:4: based_on: ./mine.yaml is based on another one itself"),
        ("3", "mine.yaml:4: based_on: "),
    ],
)
def test_what_cannot_be_borrowed_from_is_refused(name: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(DescriptionError) as error:
        load_device(write(tmp_path, FACTS.replace("mlu370-x4", name)))
    assert said in str(error.value)


def test_a_mistake_in_a_group_is_told_as_ever(tmp_path: Path) -> None:
    with pytest.raises(DescriptionError, match=r"mine.yaml:8: dma: .*mapping"):
        load_device(write(tmp_path, FACTS.replace("{engines: 4, window: 4KiB}", "fast")))
