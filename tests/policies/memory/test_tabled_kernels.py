"""Does a step take the time that a table has of its kernels, and by the law what it has not?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hwmodel.description.description import DescriptionError
from hwmodel.specs.device import Device, load_device
from hwmodel.specs.kernel_table import KINDS
from hwmodel.specs.transformer import TransformerSpec, load_model, shard
from policies.allocators.kv_groups import kv_groups
from policies.engines.scheduled_step import Chunk, Step
from policies.memory import tabled_kernels
from policies.memory.attention_read import read_share
from policies.memory.step import StepModel
from policies.memory.step_times import Efficiency
from tests.policies.memory.test_step import decode
from tests.policies.memory.test_step_work import HYBRID
from tests.policies.small import EXPERTS, LATENT, WINDOWS
from tests.policies.small import MODEL as SMALL

FIELDS = (
    "kind us format rows columns inner kv heads kv_heads head_dim window block sequences tokens"
)
MODEL = "llama-3.1-8b"
"""32 layers of 4,096, 32 and 8 heads of 128, MLPs of 14,336, a vocabulary of 128,256."""
SHAPES = [(6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336), (128256, 4096)]


def table(folder: Path, products: float, attention: float, prefill: float = 0.0) -> str:
    """A file in which all products of 1 and of 64 rows take so long, and so on, us."""
    lines = [FIELDS.replace(" ", ",")]
    for rows in (1, 64) if products else ():
        lines += [f"product,{products},bf16,{rows},{n},{k},,,,,,,," for n, k in SHAPES]
    for tokens in (1, 8192):
        shape = f"bf16,32,8,128,0,64,1,{tokens}\n".replace("64,1,", "64,{},")
        for many in (1, 64) if attention else ():
            lines.append(f"decode_attention,{attention},,,,,{shape.format(many).strip()}")
        if prefill:
            lines.append(f"prefill_attention,{prefill},,,,,bf16,32,8,128,0,,1,{tokens}")
    file = folder / f"{products}-{attention}-{prefill}.csv"
    file.write_text("\n".join(lines))
    return str(file)


def card(tables: str | None = None, *more: str) -> Device:
    stated = [] if tables is None else [f"kernels.tables={tables}"]
    return load_device("a100-80gb", ["kernels={class: nvidia-hbm}", *stated, *more])


@pytest.fixture(autouse=True)
def own_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tabled_kernels, "read_share", lambda *_: 0.9)


def test_a_decode_step_is_the_sum_of_its_kernels(tmp_path: Path) -> None:
    device, model = card(table(tmp_path, 20, 30)), load_model(MODEL)
    steps = StepModel(device, model)
    times = steps.times(decode(4, 4 * 1000), 1, Efficiency(attention=0.9))
    law = device.accelerator.kernels  # type: ignore[union-attr]
    other_us = law.host * 1e-3 + 32 * law.kernels * law.kernel * 1e-3
    norms_us = 66 * 4096 * 2 / (steps.bandwidth * law.weights) * 1e6  # read by the law
    assert times.total_s[0] * 1e6 == pytest.approx(
        (4 * 32 + 1) * 20 + 32 * 30 + other_us + norms_us, rel=1e-3
    )
    assert steps.tabled is not None and steps.tabled.beyond == set()


def test_attention_is_scaled_to_the_layout_of_the_step(tmp_path: Path) -> None:
    steps = StepModel(card(table(tmp_path, 20, 30)), load_model(MODEL))
    own, half = (
        steps.times(decode(4, 4000), 1, Efficiency(attention=share)).attention_s[0]
        for share in (0.9, 0.45)
    )
    assert own == pytest.approx(32 * 30e-6) and half == pytest.approx(2 * own)


def test_what_a_table_has_not_is_of_the_law(tmp_path: Path) -> None:
    model, step = load_model(MODEL), decode(4, 4000)
    plain = StepModel(card(), model).times(step, 1, Efficiency())
    steps = StepModel(card(table(tmp_path, 0, 30)), model)
    times = steps.times(step, 1, Efficiency(attention=0.9))
    assert times.weights_s == plain.weights_s
    assert times.attention_s[0] == pytest.approx(32 * 30e-6)
    assert steps.tabled is not None and steps.tabled.beyond == {"product"}
    beyond = steps.times(decode(65, 65 * 1000), 1, Efficiency())  # more than 64 sequences
    law = StepModel(card(), model).times(decode(65, 65 * 1000), 1, Efficiency())
    assert beyond.total_s[0] == pytest.approx(law.total_s[0])
    assert steps.tabled.beyond == {"product", "decode_attention"}


def test_many_steps_are_those_of_one_after_another(tmp_path: Path) -> None:
    steps = StepModel(card(table(tmp_path, 20, 30)), load_model(MODEL))
    together = steps.times(decode(4, 4000), 3, Efficiency(attention=0.9))
    each = [
        steps.times(decode(4, 4000 + 4 * n), 1, Efficiency(attention=0.9)).total_s[0]
        for n in range(3)
    ]
    assert together.total_s == pytest.approx(each)


def test_a_chunk_has_the_share_of_its_pairs(tmp_path: Path) -> None:
    steps = StepModel(card(table(tmp_path, 20, 30, prefill=50)), load_model(MODEL))
    none = decode(0, 0)
    first, second = (
        steps.times(none._replace(chunks=[Chunk(0, start, 16, False)]), 1, Efficiency())
        for start in (0, 16)
    )
    products_s = (4 * 32 + 1) * 20e-6
    assert first.weights_s + first.prefill_s == pytest.approx(products_s + 32 * 50e-6, rel=0.02)
    pairs = (sum(range(17, 33))) / sum(range(1, 33))
    assert second.prefill_s - first.prefill_s == pytest.approx(32 * 50e-6 * (pairs - 1), rel=1e-3)
    assert steps.tabled is not None
    assert steps.tabled._chunk_us(Chunk(0, 16, 16, False)) == pytest.approx(32 * 50 * pairs)


def test_drafts_are_of_the_law_as_tables_have_one_token_a_sequence(tmp_path: Path) -> None:
    steps = StepModel(card(table(tmp_path, 20, 30)), load_model(MODEL))
    drafted = decode(4, 4000)._replace(rows=np.full(4, 2), drafts=1)
    steps.times(drafted, 1, Efficiency(attention=0.9))
    assert steps.tabled is not None and steps.tabled.beyond == {"decode_attention"}


def test_whole_kernels_have_no_parts_to_leave_out(tmp_path: Path) -> None:
    device, model = card(table(tmp_path, 20, 30)), load_model(MODEL)
    for change in ({"together": True}, {"free": ("weights",)}, {"free": ("compute",)}):
        with pytest.raises(DescriptionError, match=r"kernels\.tables"):
            StepModel(device, model, **change)  # type: ignore[arg-type]


def test_a_given_memory_reads_at_what_is_given() -> None:
    device = load_device("rtx-4090")
    assert read_share(device, 2048, 64) == device.given.efficiency  # type: ignore[union-attr]


class Flat:
    """Tables in which each kernel of a kind takes so many us, whatever its shape."""

    def __init__(self, times: dict[str, float]) -> None:
        self.times, self.asked = times, set[tuple[Any, ...]]()

    def us(self, kind: str, exact: tuple[Any, ...], *shape: Any) -> Any:
        self.asked.add((kind, *exact))
        return np.full(np.shape(shape[-1]), self.times.get(kind, np.nan))[()]

    def grids(self, kind: str) -> Any:
        if kind == "latent_decode":
            return type("Every", (), {"__contains__": lambda *_: True})()
        heads = ((4, 2), (2, 1))
        found = {("bf16", *each, 16, 0, 64): None for each in heads}
        return found if kind == "decode_attention" else {}


def chunked(*parts: tuple[int, int]) -> Step:
    """A step of chunks alone: (start, tokens) of each."""
    chunks = [Chunk(nth, *part, True) for nth, part in enumerate(parts)]
    return decode(0, 0)._replace(chunks=chunks)


WHOLE = shard(EXPERTS, 2, "linear", "all_to_all")
KERNELS: list[tuple[str, TransformerSpec, int, Step, float]] = [
    # fused QKV, output, gate with up and down of two layers, and the head
    ("product", SMALL, 1, decode(4, 400), 4 * 2 + 1),
    ("product", SMALL, 1, chunked((0, 16)), 4 * 2 + 1),
    ("decode_attention", SMALL, 1, decode(4, 400), 2),
    ("decode_attention", HYBRID, 1, decode(4, 400), 2),
    ("prefill_attention", SMALL, 1, chunked((0, 16)), 2),
    # of a chunk behind others its share of the pairs; of a window of 40 that of its tokens
    ("prefill_attention", SMALL, 1, chunked((16, 16)), 2 * 392 / 528),
    ("prefill_attention", WINDOWS, 1, chunked((0, 16)), 6),
    ("prefill_attention", WINDOWS, 1, chunked((50, 10)), 2 * 555 / 1830 + 4 * 10 / 60),
    ("latent_decode", LATENT, 1, decode(4, 400), 2),
    ("latent_prefill", LATENT, 1, chunked((0, 16)), 2),
    ("latent_prefill", LATENT, 1, chunked((16, 16), (0, 8)), 2 * 0.5 + 2),
    ("experts", EXPERTS, 1, decode(4, 400), 2),
    ("state_decode", HYBRID, 1, decode(4, 400), 4),
    ("state_prefill", HYBRID, 1, chunked((0, 16), (0, 8)), 2 * 4),
    ("all_reduce", shard(EXPERTS, 2), 2, decode(4, 400), 2 * 3),
    ("all_to_all", WHOLE, 2, decode(4, 400), 2),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "model", "cards", "step", "many"), KERNELS)
def test_a_step_has_so_many_kernels_of_a_kind(
    kind: str, model: TransformerSpec, cards: int, step: Step, many: float,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    device, found = card(table(tmp_path, 20, 30)), []
    for us in (np.nan, 5000.0, 9000.0):
        others = dict.fromkeys(("prefill_attention", "latent_prefill"), 1.0)
        flat = Flat({**others, kind: us} if kind.startswith("state") else {kind: us})
        monkeypatch.setattr(tabled_kernels, "kernel_tables", lambda *_, flat=flat: flat)
        steps = StepModel(device, model, cards, groups=kv_groups(model, "full"))
        found.append(steps.times(step, 1, Efficiency(attention=0.9)).total_s[0] * 1e6)
        assert steps.tabled is not None
        assert (kind in steps.tabled.beyond) == np.isnan(us)
    assert found[2] - found[1] == pytest.approx(4000 * many)
    assert found[1] > found[0]


STEPS = [
    (model, cards, step)
    for model, cards in (
        (SMALL, 1), (LATENT, 1), (EXPERTS, 1), (HYBRID, 1), (shard(EXPERTS, 2), 2)
    )
    for step in (decode(4, 400), chunked((0, 16), (16, 8)), decode(3, 90)._replace(
        chunks=[Chunk(9, 0, 16, True)]))
]  # fmt: skip


@pytest.mark.parametrize(("model", "cards", "step"), STEPS)
def test_of_what_tables_have_nothing_is_left_to_the_law(
    model: TransformerSpec, cards: int, step: Step, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flat = Flat(dict.fromkeys(KINDS, 10.0))
    monkeypatch.setattr(tabled_kernels, "kernel_tables", lambda *_: flat)
    totals = []
    slow = ["compute.fp16=1TFLOPS", "compute.bf16=1TFLOPS"]
    launches = ["kernels.product=1ms", "kernels.attention=1ms"]
    for more in ([], slow, launches, ["kernels.kernel=1ms"]):
        device = card(table(tmp_path, 20, 30), *more)
        steps = StepModel(device, model, cards, groups=kv_groups(model, "full"))
        totals.append(float(steps.times(step, 1, Efficiency(attention=0.9)).total_s[0]))
        assert steps.tabled is not None and not steps.tabled.beyond
    if model is not HYBRID:  # whose layers with a state have FLOPs of the law
        assert totals[1] == pytest.approx(totals[0], rel=1e-9)
    if model is not HYBRID:  # with other products than the law has
        assert totals[2] == pytest.approx(totals[0], rel=1e-9)
    law = card().accelerator.kernels  # type: ignore[union-attr]
    stated = sum(many for kind, many in model.kinds.items() if kind.state is not None)
    kernels = model.layers * law.kernels + stated * law.state_kernels
    kernels -= 2 * stated  # the convolution and the recurrence
    assert totals[3] - totals[0] == pytest.approx(kernels * (1e-3 - law.kernel * 1e-9))
    experts = {key for key in flat.asked if key[0] == "experts"}
    wide = {("experts", "bf16", 64, 32, 2, 16, cards)}  # as wide as in the model
    assert experts == (wide if model.experts else set())
