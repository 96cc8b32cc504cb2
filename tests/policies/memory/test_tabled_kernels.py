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
from tests.policies.small import EXPERTS, LATENT
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
