"""Are the models where measurements say that they are, and are mistakes in these placed?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hwmodel.description.library import names
from hwmodel.specs.device import Device, load_device
from hwmodel.specs.transformer import load_model
from policies.allocators.allocator import Limits
from policies.allocators.kv_groups import kv_groups
from policies.engines.scheduled_step import Chunk
from policies.memory import measured, measured_steps
from policies.memory.measured import MeasurementSpec, compare, load_measurements
from policies.memory.measured_cells import ComparedCell, Quantity, Recorded, Tolerance
from policies.memory.measured_steps import Decode, Runtime, StepTime, decode_time, kv_rate
from policies.memory.step import StepModel
from policies.memory.step_times import Efficiency
from tests.policies.memory.test_step import decode as decode_of
from tests.rotation import long

QUICK = ("bandwidth", "latency", "energy")
CARD = "llama-2-7b-a100-80gb"
FILE = """kind: measurement
name: mine
summary: x
sources: {s: somewhere}
device: hbm2-2.0
setups: {fast: {clock.tCK: 0.9ns}}
tolerances: {near: {within: 3%, reason: assumed}}
cells:
  - {what: a, bandwidth: {size: 1KiB}, measured: 14GB/s, tolerance: near, source: s, confidence: A}
"""


def only(spec: MeasurementSpec, *places: int) -> MeasurementSpec:
    """The measurements with these cells alone."""
    return spec.model_copy(update={"cells": [spec.cells[at] for at in places]})


@pytest.mark.parametrize("part", [0, *long(1, 2, 3, 4, 5)])
@pytest.mark.parametrize("name", names("measurements"))
def test_no_agreement_is_lost(name: str, part: int) -> None:
    """Of the cells that take a second or less, all but step times: each sixth."""
    spec = load_measurements(name)
    quick = [i for i, cell in enumerate(spec.cells) if cell.agrees and cell.kind in QUICK][part::6]
    found = compare(only(spec, *quick))
    assert [f"{item.cell.what}: {item.error:+.1%}" for item in found if item.lost] == []


@pytest.mark.long
@pytest.mark.parametrize("name", names("measurements"))
def test_no_agreement_on_step_times_is_lost(name: str) -> None:
    spec = load_measurements(name)
    kept = [i for i, cell in enumerate(spec.cells) if cell.agrees and cell.kind not in QUICK]
    found = compare(only(spec, *kept))
    assert [f"{item.cell.what}: {item.error:+.1%}" for item in found if item.lost] == []


def test_a_program_has_its_own_kernels_and_what_a_device_says_stays() -> None:
    model, step = load_model("llama-2-7b"), Decode(batch=1, context=64)
    cards = [
        load_device("a100-80gb", [f"kernels.program={name}"]) for name in ("vllm", "llama.cpp")
    ]
    usual, other = (decode_time(card, model, step, Runtime()).ms for card in cards)
    law, other_law = (card.accelerator.kernels for card in cards)  # type: ignore[union-attr]
    assert other_law.weights == law.weights == 0.8 and other_law.kv != law.kv
    launches = 7 * 8 + 9 * 8 + 8 - (4 * 4.5 + 5 * 2.5 + 10)  # us of a layer
    assert other - usual == pytest.approx(32 * launches / 1000, rel=0.05)


def test_a_decode_step_of_a_model_with_windows_reads_what_they_keep() -> None:
    """gpt-oss-20b, whose every other layer sees 128 tokens."""
    device, model = load_device("l40s"), load_model("gpt-oss-20b")
    short, long = (
        decode_time(device, model, Decode(batch=1, context=context), Runtime()).ms
        for context in (4096, 8192)
    )
    more = 4096 * model.kv_token_bytes / 2
    assert long - short == pytest.approx(more / (0.82 * 864e6), rel=0.01)


def test_verdicts_by_hand() -> None:
    cell = load_measurements(CARD).cells[0]
    measured = cell.measured.value

    def verdict(error: float, stands: str = "measured", agrees: bool = False) -> tuple[str, bool]:
        changed = cell.model_copy(update={"stands": stands, "agrees": agrees})
        item = ComparedCell(changed, measured * (1 + error), measured * 0.1)
        assert item.error == pytest.approx(error)
        return item.verdict, item.lost

    assert verdict(0.09) == verdict(-0.09, agrees=True) == ("within", False)
    assert verdict(0.11) == ("refuted", False)
    assert verdict(-0.11, agrees=True) == ("refuted", True)
    whole, just = 0.125, cell.model_copy(update={"measured": Quantity(8.0, "GB/s")})
    for stands, told in (("measured", "within"), ("lower_limit", "lower limit")):
        edge = just.model_copy(update={"stands": stands})
        assert ComparedCell(edge, 8.0 - whole, whole).verdict == told  # as far as it may be
    # a lower limit of a rate is an upper limit of a time
    assert verdict(-0.5, "lower_limit") == verdict(0.09, "lower_limit") == ("lower limit", False)
    assert verdict(0.11, "lower_limit") == ("refuted", False)
    assert verdict(0.5, "input") == ("input", False)


def test_shares_of_the_peaks_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_weights", "_attention"):  # what is simulated is no part of a share
        monkeypatch.setattr(measured_steps, name, lambda *_: 0.9)
    decode, prefill = compare(only(load_measurements(CARD), 3, 11))
    # the weights without the embedding table and 1153 tokens of 512 KiB in 10.1 ms, of 2039 GB/s
    moved = 13_214_687_232 + 1153 * (512 << 10)
    assert decode.share == pytest.approx(moved / 10.1e-3 / 2039e9, rel=1e-3)
    # 2 FLOPs a weight of the matrices and a token, 4 x 32 x 4096 for each token attended to
    layers = 32 * (4 * 4096**2 + 3 * 4096 * 11008)
    flops = 2 * layers * 2048 + 2 * 4096 * 32000 + 2048 * 2049 // 2 * 4 * 32 * 4096
    assert prefill.share == pytest.approx(flops / 133e-3 / 312e12, rel=1e-6)
    model = load_model("llama-2-7b")
    steps = StepModel(load_device("a100-80gb"), model, groups=kv_groups(model, "full"))
    prompt = decode_of(0, 0)._replace(chunks=[Chunk(0, 0, 2048, True)])
    assert prefill.model == pytest.approx(steps.times(prompt, 1, Efficiency(0.9)).total_s[0] * 1e3)


@pytest.mark.parametrize("cards", [1, 2])
def test_the_rate_of_kv_is_its_bytes_over_what_they_add_to_a_step(
    cards: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 3 us a token of context beside whatever else there is, by each card its share."""
    monkeypatch.setattr(measured_steps, "decode_time", lambda _, __, item, ___: StepTime(
        5 + 3e-3 * item.context, 0.0))  # fmt: skip
    model, step = load_model("llama-2-7b"), Decode(batch=4, context=600, since=200, cards=cards)
    found = kv_rate(load_device("a100-80gb"), model, step, Runtime())
    assert found == pytest.approx(4 * model.kv_token_bytes / cards / 3e-6 / 1e9)


def test_is_each_figure_in_the_unit_that_it_was_measured_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def simulated(device: Device, pattern: Any) -> dict[str, float]:
        peak = device.peak_gbps
        return {"bandwidth_gbps": peak / 4, "energy_nj": 16.0, "bytes": 500.0}

    monkeypatch.setattr(measured, "bandwidth", simulated)
    monkeypatch.setattr(measured, "channel_latency", lambda device, row: 40.0)
    monkeypatch.setattr(measured, "attention_rate", lambda device, read: 90.0)
    monkeypatch.setattr(measured, "layout_gbps", lambda device, read: 80.0)
    first, *_ = FILE.partition("cells:")
    rest = "tolerance: near, source: s, confidence: A}\n"
    file = tmp_path / "mine.yaml"
    file.write_text(
        first.replace("sources:", "requester: 5ns\nsources:")
        + "cells:\n"
        + "".join(
            f"  - {{what: a, {cell}, {rest}"
            for cell in (
                "bandwidth: {size: 1KiB}, measured: 10GB/s",
                "bandwidth: {size: 1KiB}, measured: 20%",
                "bandwidth: {size: 1KiB}, measured: 2x, over: fast",
                "energy: {size: 1KiB}, measured: 3pJ/bit",
                "latency: {row: hit}, measured: 50ns",
                "attention: {sequences: 8, tokens: 64, since: 32, kv_heads: 2, block: 16},"
                " measured: 100GB/s",
                "kv_order: {kv_heads: 4}, measured: 100GB/s",
            )
        )
    )
    found = compare(load_measurements(str(file)))
    peak = load_device("hbm2-2.0").peak_gbps
    fast = load_device("hbm2-2.0", ["clock.tCK=0.9ns"]).peak_gbps
    assert [each.model for each in found] == pytest.approx(
        [peak / 4, 25, peak / fast, 4.0, 45.0, 90.0, 80.0]
    )
    assert [each.tolerance for each in found] == pytest.approx([0.3, 0.6, 0.06, 0.09, 1.5, 3, 3])
    assert [each.error for each in found[1:]] == pytest.approx(
        [0.25, peak / fast / 2 - 1, 1 / 3, -0.1, -0.1, -0.2]
    )
    assert {each.derate for each in found} == {1.0}


def test_a_card_s_figures_are_of_its_memory_its_software_and_the_release_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[tuple[str, int, int]] = []

    def step(device: Device, model: Any, item: Decode, runtime: Runtime) -> StepTime:
        ran.append((model.name, item.context, runtime.age))
        return StepTime(8.0, 2.0)

    monkeypatch.setattr(measured, "decode_time", step)
    monkeypatch.setattr(measured, "prefill_time", lambda *_: StepTime(30.0, 10.0))
    monkeypatch.setattr(measured, "device_latency", lambda device, window: 70.0 + window)
    monkeypatch.setattr(Recorded, "value", lambda own: float(len(own.run)))
    first, *_ = FILE.partition("cells:")
    head = first.replace("device: hbm2-2.0", "device: a100-80gb\nmodel: llama-2-7b")
    head = head.replace("{fast: {clock.tCK: 0.9ns}}", "{fast: {derate: 0.5}}")
    cells = (
        "latency: {window: 30B}, measured: 50ns", "layout: {run: abc, figure: x}, measured: 4s",
        "decode: {batch: 1, context: 64}, measured: 10ms, runtime: own",
        "decode: {batch: 1, context: 65}, measured: 10ms",
        "prefill: {tokens: 64}, measured: 20ms, model: qwen3-8b",
    )  # fmt: skip
    rest = "tolerance: near, source: s, confidence: A}\n"
    file = tmp_path / "mine.yaml"
    file.write_text(f"{head}runtimes: {{own: {{age: 7}}}}\ncells:\n"
                    + "".join(f"  - {{what: a, {cell}, {rest}" for cell in cells))  # fmt: skip
    found = compare(load_measurements(str(file)))
    assert [each.model for each in found] == [100.0, 3.0, 8.0, 8.0, 30.0]
    assert [each.share for each in found] == [None, None, 0.2, 0.2, 0.5]
    assert sorted(ran) == [("llama-2-7b", 64, 7), ("llama-2-7b", 65, Runtime().age)]
    by = [each.by and (each.by.device, each.by.model) for each in found]
    assert by == [None, None, *[("a100-80gb", "llama-2-7b")] * 2, ("a100-80gb", "qwen3-8b")]
    law = load_device("a100-80gb").accelerator.kernels  # type: ignore[union-attr]
    for each in found[2:]:
        assert each.by is not None and each.by.expected == (law.spread_low, law.spread_high)
        ends = [each.model * law.spread_low, each.model * law.spread_high]
        for ms, inside in ((ends[0], True), (ends[1], True), (0.99 * ends[0], False),
                           (1.01 * ends[1], False)):  # fmt: skip
            cell = each.cell.model_copy(update={"measured": Quantity(ms, "ms")})
            assert replace(each, cell=cell).inside is inside


def test_how_is_a_figure_written() -> None:
    figures = [(14.0, "GB/s"), (2.5, "x"), (12.345, "%"), (1234.5, "tokens/s"), (999.96, "ms")]
    assert [str(Quantity(*each)) for each in figures] == [
        "14 GB/s", "2.5x", "12.35%", "1,234 tokens/s", "1000 ms"
    ]  # fmt: skip
    share, absolute = (Tolerance(within=within, reason="") for within in ("3%", "2ns"))
    measured = Quantity(50.0, "ns")
    assert (share.around(measured), absolute.around(measured)) == (1.5, 2.0)


@pytest.mark.parametrize(("pad", "longest"), [(None, 1200), (256, 768), (601, 601), (600, 1200)])
def test_how_long_can_sequences_of_a_measured_step_become(
    pad: int | None, longest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    placed: list[Any] = []

    def place(allocator: Any, batch: Any, rng: Any) -> Any:
        placed.append(allocator.limits)
        return batch_placed(allocator, batch, rng)

    batch_placed = measured_steps.place
    monkeypatch.setattr(measured_steps, "place", place)
    monkeypatch.setattr(
        measured_steps, "simulate_once", lambda device, stream: SimpleNamespace(gbps=100.0)
    )
    card, model = load_device("a100-80gb"), load_model("llama-2-7b")
    step = Decode(batch=2, context=600)
    share = measured_steps._attention(card, model, step, Runtime(pad=pad, age=0))
    assert placed == [Limits(600, longest)]
    assert share == pytest.approx(100 / card.peak_gbps * card.derate)


def test_a_set_up_may_be_another_device_and_what_reaches_its_engines_counts(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(
        FILE.replace("clock.tCK: 0.9ns", "device: oaken-lpddr").replace(
            "source: s,", "source: s, setup: fast,"
        )
    )
    (found,) = compare(load_measurements(str(file)))
    assert found.derate == 0.9
    assert 0.8 * 1092.3 < found.model < 0.9 * 1092.3
