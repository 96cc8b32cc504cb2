"""Do plausible variants change what they name, and nothing about the device as described?"""

from __future__ import annotations

from pathlib import Path

import pytest

from hwmodel.specs.device import device_names, load_device, load_variants

CARDS = Path(__file__).resolve().parents[3] / "yaml/accelerators"
MLU = (CARDS / "mlu370-x4.yaml").read_text()
BARE = MLU[: MLU.index("plausible:")]


def card(folder: Path, text: str) -> str:
    (folder / "card.yaml").write_text(text)
    return str(folder / "card.yaml")


@pytest.mark.parametrize("name", ["mlu370-x4", "a100-80gb"])
def test_a_device_is_the_same_with_and_without_its_variants(name: str, tmp_path: Path) -> None:
    text = (CARDS / f"{name}.yaml").read_text()
    listed, bare = load_device(name), load_device(card(tmp_path, text[: text.index("plausible:")]))
    assert listed.plausible and not bare.plausible
    assert (listed.digest, listed.assumed) == (bare.digest, bare.assumed)


@pytest.mark.parametrize("name", device_names())
def test_variants_that_ship_fit_their_device(name: str) -> None:
    variants = load_variants(name)
    assert list(variants.devices) == list(load_device(name).plausible) and not variants.left_out


def test_a_variant_is_the_device_with_its_overrides() -> None:
    variants = load_variants("mlu370-x4")
    assert not variants.left_out
    settings = ["controller.read_queue=64", "controller.write_queue=64"]
    assert variants.devices["queues of 64"].digest == load_device("mlu370-x4", settings).digest
    assert variants.devices["8-bank mode"].memory.name == "lpddr5-6400-x16-8b"


def test_what_an_override_states_is_not_varied() -> None:
    variants = load_variants("mlu370-x4", ["controller={read_queue: 16}", "dma.window=8KiB"])
    reason = "--set controller={read_queue: 16} states it"
    left_out = dict.fromkeys(["queues of 64", "two banks and queues of 64"], reason)
    assert variants.left_out == left_out
    assert variants.devices["8-bank mode"].memory.controller.read_queue == 16


def test_a_variant_that_does_not_fit_the_overrides_is_left_out() -> None:
    variants = load_variants("mlu370-x4", ["memory=hbm2e-3.2"])
    assert "column 6 bits; this memory has 5" in variants.left_out["two banks a piece"]
    assert variants.left_out["8-bank mode"] == "--set memory=hbm2e-3.2 states it"
    assert variants.devices["queues of 64"].memory.name == "hbm2e-3.2"


def test_variants_are_borrowed_with_the_same_memory_only(tmp_path: Path) -> None:
    text = BARE.replace("name: mlu370-x4", "name: mine\nbased_on: mlu370-x4")
    assert list(load_device(card(tmp_path, text)).plausible) == list(
        load_device("mlu370-x4").plausible
    )
    other = text.replace("memory: lpddr5-6400-x16", "memory: lpddr5x-8533-x16")
    other = "\n".join(line for line in other.splitlines() if not line.startswith("bus:"))
    other = other.replace("capacity: {value: 24GiB", "capacity: {value: 48GiB")
    assert not load_device(card(tmp_path, other)).plausible
    assert not load_device(card(tmp_path, f"{text}plausible: {{}}\n")).plausible


def test_a_memory_has_variants_too_and_a_derived_one_inherits_them(tmp_path: Path) -> None:
    path = card(
        tmp_path,
        "kind: memory\nname: mine\nsummary: x\nbased_on: lpddr5-6400-x16\n"
        "plausible:\n  deep: {set: {controller.read_queue: 64}, why: x}\n",
    )
    assert load_variants(path).devices["deep"].memory.controller.read_queue == 64
    (tmp_path / "b.yaml").write_text("kind: memory\nname: b\nsummary: x\nbased_on: card.yaml\n")
    assert list(load_device(str(tmp_path / "b.yaml")).plausible) == ["deep"]
