"""Does a step take the time that a table has of its kernels, and by the law what it has not?"""

from __future__ import annotations

from pathlib import Path

import pytest

from hwmodel.description.description import DescriptionError
from hwmodel.specs.device import Device, load_device
from hwmodel.specs.transformer import load_model
from policies.memory import tabled_kernels
from policies.memory.attention_read import read_share
from policies.memory.step import StepModel
from policies.memory.step_times import Efficiency
from tests.policies.memory.test_step import decode

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
