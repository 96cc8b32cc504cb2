"""Is a device whose memory is given usable for serving, and refused in one line elsewhere?"""

from __future__ import annotations

from pathlib import Path

import pytest

from hwmodel.description.description import DescriptionError
from hwmodel.specs.device import load_device
from sweeps.cli.main import main

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


@pytest.mark.parametrize(
    ("old", "new", "answer"),
    [
        ("given: {", "# {", "given: stands with memory: given"),
        ("capacity", "channels: 4\ncapacity", "channels: of a simulated memory"),
        ("capacity", "dies: {count: 2}\ncapacity", "crossing_latency"),
        ("memory: given\ngiven", "memory: hbm2e-3.2\nchannels: 40\n# ", "dma"),
        ("500GB/s", "0GB/s", "bandwidth"),
    ],
)
def test_a_mistake_is_answered_with_its_reason(
    tmp_path: Path, old: str, new: str, answer: str
) -> None:
    with pytest.raises(DescriptionError) as error:
        load_device(described(tmp_path, old, new))
    assert answer in str(error.value)


def test_a_mistake_elsewhere_does_not_make_it_a_memory_to_look_for(tmp_path: Path) -> None:
    with pytest.raises(DescriptionError) as error:
        load_device(described(tmp_path), ["capacity=-3GiB"])
    assert "a size cannot be negative" in str(error.value)
    assert "no shipped memory" not in str(error.value)


def test_overrides_of_a_memory_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DescriptionError, match=r"timing\.tRCD: mine has no simulated memory"):
        load_device(described(tmp_path), ["timing.tRCD=18ns"])


@pytest.mark.parametrize(
    "command",
    [
        ["memory", "DEVICE"],
        ["memory", "curve", "DEVICE"],
        ["memory", "refresh", "DEVICE"],
        ["replay", "DEVICE", "TRACE"],
        ["replay", "DEVICE", "docs/block-tables.jsonl"],
        ["run", "kv-extent", "--set", "device=DEVICE", "--set", "replications=1", "--out", "OUT"],
        ["run", "smoke", "--set", "device=DEVICE", "--out", "OUT",
         "--set", "serving.memory={fidelity: sampled}"],
        ["export", "smoke", "--set", "device=DEVICE", "--out", "OUT.gz", "--point", "1"],
    ],
    ids=lambda command: "-".join(command[::2]),
)  # fmt: skip
def test_what_needs_a_simulation_says_why_it_cannot(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "t.csv"
    trace.write_text("kind,address\nR,0\n")
    places = {"DEVICE": described(tmp_path), "OUT": str(tmp_path / "out"), "TRACE": str(trace)}
    for name, place in places.items():
        command = [part.replace(name, place) for part in command]
    with pytest.raises(SystemExit) as end:
        main(command)
    err = capsys.readouterr().err
    assert end.value.code == 2 and "bandwidth is given" in err and "Traceback" not in err
