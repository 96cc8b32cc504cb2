"""Do steps take the times that they took, and are they made of as much work?

Every accelerator with four models, every model on one, and small models in each way of serving are
held against `steps.json` (`tests.policies.records`): ms of some steps, and a checksum of all that
was said of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from hwmodel.description.description import DescriptionError
from hwmodel.description.library import names
from hwmodel.specs.device import Device, load_device
from hwmodel.specs.link import load_link
from hwmodel.specs.stages import stages_of
from hwmodel.specs.transformer import TransformerSpec, load_model, shard
from policies.allocators.capabilities import Migration
from policies.allocators.kv_groups import kv_groups
from policies.engines.scheduled_step import Chunk, Step, SwapCopies
from policies.engines.speculation import SpeculationSpec
from policies.memory import tabled_kernels
from policies.memory.distributed_attention import DistributedAttention, Share
from policies.memory.drafting import DraftingSteps, drafter_of
from policies.memory.pipeline import Exchange, PipelineSpec, PipelineSteps
from policies.memory.routing import Routing, RoutingSpec
from policies.memory.step import StepModel
from policies.memory.step_times import Efficiency, StepTimes
from tests.policies.checksum import checksum
from tests.policies.memory.test_sparse import sparse_of
from tests.policies.memory.test_step_work import BESIDE, HYBRID
from tests.policies.records import Records
from tests.policies.small import EXPERTS, LATENT, MODEL, WINDOWS

MODELS = ("llama-3.1-8b", "gpt-oss-20b", "deepseek-v2-lite", "falcon-h1-7b")
"""Shared KV heads; windows and experts; latent attention; layers with a state."""
CARD = "mi300x"
"""On which every model is served."""
SHARES = Efficiency(weights=0.9, attention=0.5, prefill=0.7, migration=0.6)
NONE = Step(np.arange(0), 0, [], [], 0, "")
PARTS = [Chunk(9, 512, 256, False), Chunk(10, 0, 33, True)]
SHIPPED = (
    Step(np.arange(1), 1000, [], [], 0, ""),
    Step(np.arange(64), 64 * 1500, [], [], 0, ""),
    NONE._replace(chunks=[Chunk(0, 0, 700, True)]),
    Step(np.arange(9), 9 * 300, PARTS, [], 0, ""),
)
"""One request, many, a prompt, and parts of prompts beside requests."""
LENGTHS, ROWS = np.array([5, 40, 47, 90, 700]), np.array([1, 4, 2, 3, 2])
FEW = Step(np.arange(5), int(LENGTHS.sum()), [], [], 0, "", lengths=LENGTHS)
SMALL = (
    FEW,
    FEW.verifying(LENGTHS, ROWS)._replace(chunks=[Chunk(10, 30, 33, True)]),
    NONE._replace(chunks=[Chunk(0, 0, 700, True), Chunk(1, 39, 2, True), Chunk(2, 64, 64, False)]),
    FEW._replace(
        chunks=PARTS, migrations=[Migration(1, 0, 64, 40, 64), Migration(2, 9, 99, 7, 8)],
        copies=(Migration(3, 0, 640, 16, 16), Migration(4, 8, 648, 5, 16)), aged=3,
        swaps=SwapCopies((100, 60, 7), 32),
    ),
    Step(np.arange(70), 70 * 900, [], [], 0, "", lengths=np.full(70, 900)),
)  # fmt: skip
"""Of several lengths, with drafts beside a prompt, prompts alone, with all that moves, and many."""
AROUND = [each._replace(elsewhere=(6, 30)) for each in SMALL]
SLOW = ["compute.fp16=600GFLOPS", "compute.bf16=600GFLOPS", "compute.vector=1GFLOPS"]
GIVEN = "given={bandwidth: 300GB/s, efficiency: 0.8, attention: [{size: 1KiB, share: 0.2}, "
GIVEN += "{size: 64KiB, share: 0.6}, {size: 1MiB, share: 0.9}]}"


def small(*settings: str) -> Device:
    return load_device("mlu370-x4", settings)


def said(found: Iterable[StepTimes], *more: Any) -> str:
    """ms of each, and a checksum of all, of what follows from them, and of more."""
    each = list(found)
    ms = ", ".join(dict.fromkeys(f"{times.total_s[0] * 1e3:.6g}" for times in each))
    return f"{ms} ms, {checksum([list(map(whole, each)), more])}"


def whole(times: StepTimes) -> list[Any]:
    """A step, and what follows from it."""
    rounds = len(times.total_s)
    work, slow = times.work, times.delayed(np.linspace(0, 1e-3, rounds))
    parts = {
        name: [phase.waits / 1, phase.moved / 1, {k: v / 1 for k, v in phase.bytes.items()},
               {k: v / 1 for k, v in phase.flops.items()}]
        for name, phase in work.phases.items()
    }  # fmt: skip
    apart = times._replace(weights_apart=True, copy_s=times.copy_s + times.total_s[0] / 9)
    return [
        times._asdict() | {"work": 0}, work._asdict() | {"phases": 0}, parts, work.moved,
        work.first(1).moved, times.first(1).total_s, times.memory_s, slow.memory_s,
        slow.delayed(np.ones(rounds)).stall_s, times.contended(1.0, 4.0, 1.5),
        apart.contended(1.0, 4.0),
    ]  # fmt: skip


def shipped(device: str, *models: str) -> str:
    """Each model that the device can serve, or why it cannot."""
    card, told = load_device(device), []
    for model in models:
        try:
            shape = load_model(model)
            steps = StepModel(card, shape, groups=kv_groups(shape, "full"))
            found = said(steps.times(step, 2, SHARES) for step in SHIPPED)
        except DescriptionError as error:
            found = error.message
        told.append(f"{model} {found}")
    return "; ".join(told)


def timed(made: StepModel, model: TransformerSpec, steps: Iterable[Step]) -> list[StepTimes]:
    """One of each, and three of those that may be taken together."""
    return [
        made.times(step, rounds, SHARES)
        for step in steps for rounds in ((1,) if model.window or step.drafts else (1, 3))
    ]  # fmt: skip


def served(
    model: TransformerSpec, *settings: str, cards: int = 1, steps: Iterable[Step] = SMALL,
    kv: Any = "ring", of: str = "mlu370-x4", **options: Any,
) -> str:  # fmt: skip
    """On a card as it is, and on one that computes slowly."""
    found = []
    for slow in ([], SLOW):
        made = StepModel(
            load_device(of, [*settings, *slow]),
            model,
            cards,
            groups=kv_groups(model, kv),
            **options,
        )
        found += timed(made, model, steps)
    return said(found, made.host_s(1e6), made.attention_alone_s(900, 4000, 60, SHARES))


class Priced:
    """Tables that have a time of every kernel but of some kinds, more or less than in proportion to
    its shape."""

    def __init__(self, *without: str) -> None:
        self.without = without

    def us(self, kind: str, exact: tuple[Any, ...], *shape: Any) -> Any:
        base: Any = 5 + int(checksum([kind, list(map(str, exact))]), 16) % 90
        for n, each in enumerate(shape):
            base = base * (1 + np.asarray(each)) ** (0.3 + 0.1 * n)
        return base * (np.nan if kind in self.without else 1.0)

    def grids(self, kind: str) -> Any:
        heads = ((4, 2), (2, 1))
        found: dict[Any, None] = {
            ("bf16", *each, 16, 0, n): None for each in heads for n in (64, 8)
        }
        latent = {("bf16", "bf16", 64, kept, 4) for kept in (64, 48)}
        return found if kind == "decode_attention" else {} if kind in self.without else latent


def tabled(model: TransformerSpec, cards: int, steps: Iterable[Step], *without: str) -> str:
    with (
        patch.object(tabled_kernels, "kernel_tables", lambda *_: Priced(*without)),
        patch.object(tabled_kernels, "read_share", lambda *of: 0.9 if of[2] == 8 else 0.8),
        patch("hwmodel.specs.kernel_law.kernel_tables"),
    ):
        card = load_device("a100-80gb", ["kernels.tables=mine", "compute.fp16=1TFLOPS"])
        made = StepModel(card, model, cards, groups=kv_groups(model, "ring"), slowdown=1.25)
        assert made.tabled is not None
        found = timed(made, model, steps)
        return said(found, sorted(made.tabled.beyond))


def staged(many: int, exchange: Exchange | None = None, **options: Any) -> str:
    """A series of steps of stages, of which two of three rounds are done."""
    model = MODEL.model_copy(update={"layers": 5})
    stored: Any = np.append(LENGTHS + 1, np.full(95, 33))
    parts = [StepModel(small(), each) for each in stages_of(model, many)]
    steps = PipelineSteps(
        PipelineSpec(**options), parts, type("Held", (), {"stored": stored}),  # type: ignore[arg-type]
        np.linspace(0, 2e-3, 100), small().accelerator.card_link, 128, 2,  # type: ignore[union-attr]
    )  # fmt: skip
    found, more = [], []
    steps.exchange = exchange
    for nth, step in enumerate((SMALL[1], SMALL[0], SMALL[3], SMALL[0], SMALL[4])):
        queued = [Chunk(40 + n, 100 * n, 150, True) for n in range(4)]
        more.append(steps.ahead(step.decode, queued, 300) if steps.looks_ahead else 0)
        rounds = 1 if nth < 3 else 3
        found.append(steps.times(step, rounds, SHARES))
        steps.passed(min(rounds, 2))
        steps.now_s += float(found[-1].total_s[:2].sum())
        more += [steps.figures(), steps.link_share, steps.longer]
    return said(found, more)


def drafted(model: TransformerSpec, passes: int, cards: int = 1, **options: Any) -> str:
    spec = SpeculationSpec(tokens=passes, acceptance=[0.5] * passes, **options)
    drafter = drafter_of(spec, model, cards)
    assert drafter is not None
    groups = kv_groups(model, "ring")
    made, own = StepModel(small(), model, groups=groups), StepModel(small(), drafter.model)
    steps = DraftingSteps(made, own, passes, small())
    found = [steps.times(step, 1, SHARES) for step in AROUND]
    return said(found, drafter.weight_bytes, drafter.model.weight_bytes)


def lent(model: TransformerSpec, stages: int = 1) -> str:
    link = load_link("mooncake-rdma-400")
    card = StepModel(small(), model, slowdown=1.25, groups=kv_groups(model, "ring"))
    work = DistributedAttention(model, link, 256, stages)
    parts = [Share(3, 700, 0, 0, 0), Share(), Share(1, 900, 64, 300, 30000), Share(0, 0, 9, 4, 50)]
    found = [
        work.asks(shares, busy, 80, card, SHARES)
        for shares, busy in ((parts, [False] * 4), (parts, [True, False, True, False]),
                             (parts[1:2], [True]), (parts[:1], [False]))
    ]  # fmt: skip
    more = work.copy_s(300), work.token_s, work.written_s(card, SHARES), work.merge_bytes(3)
    return f"{found[0].path_s * 1e3:.6g} ms, {checksum([found, more, work.kv_token_bytes])}"


QUANT = MODEL.model_copy(update={"kv": "qserve"})
UNABSORBED = LATENT.model_copy(update={
    "latent": LATENT.latent.model_copy(update={"decode": "unabsorbed", "prefill": "unabsorbed"}),  # type: ignore[union-attr]
})  # fmt: skip
TOP: dict[str, Any] = {"name": "top_k", "tokens": 48, "index_bytes": "12B", "prefill": "selected"}
PAGES: dict[str, Any] = {"name": "pages", "tokens": 48, "page": 8}
SKEWED, SPREAD = RoutingSpec(skew=1.2), ("balanced", "all_to_all", 2)
SPLIT, ALIKE = shard(EXPERTS, 2), shard(EXPERTS, 2, "linear")
AWAY = shard(EXPERTS, 2, *SPREAD)  # type: ignore[arg-type]
WHOLE = shard(EXPERTS, 2, "linear", "all_to_all")
LINEAR = Exchange([[1e-3, 2e-3, 2.5e-3], [1.5e-3], []], chunks=True)


def routed(model: TransformerSpec) -> Routing:
    assert model.experts is not None
    return Routing(model.experts, SKEWED, 3)


SAID: dict[str, Callable[[], str]] = {
    **{device: partial(shipped, device, *MODELS) for device in names("accelerators")},
    **{model: partial(shipped, CARD, model) for model in names("models")},
    **{f"small, {name}": partial(served, MODEL, *settings, **options)
       for name, settings, options in (
        ("as it is", [], {}), ("together", [], {"together": True}),
        ("together, summed", ["compute.overlap=sum"], {"together": True, "slowdown": 1.25}),
        ("half of it hidden", ["compute.overlap=0.5"], {"slowdown": 1.25}),
        ("without weights", [], {"free": ["weights"]}),
        ("without compute", [], {"free": ["compute"]}),
        ("without copies", [], {"free": ["copies"]}), ("heads apart", ["work.grouped=false"], {}),
        ("two cards", [], {"cards": 2}),
        ("of a GPU", ["kernels={class: nvidia-hbm}"], {"slowdown": 1.25}),
        ("of Metal", ["kernels={class: apple}"], {}),
    )},
    **{f"small, given, {even=}": partial(served, MODEL, GIVEN, of="rtx-pro-6000", even=even)
       for even in (False, True)},
    "in 8 bits": partial(served, MODEL.stored_as("int8", "fp8")),
    "in 4 bits": partial(served, MODEL.stored_as("w4a16", "int8"), "compute.int8=null"),
    "KV in 4 bits": partial(served, QUANT, "work.grouped=false"),
    "KV converted on its way": partial(
        served, MODEL.model_copy(update={"head_dim": 128, "kv": "oaken"}),
        "host={bandwidth: 16GB/s}", of="oaken-lpddr"),
    "latent": partial(served, LATENT),
    "latent, unabsorbed": partial(served, UNABSORBED),
    "windows": partial(served, WINDOWS),
    "windows in blocks": partial(served, WINDOWS, kv="blocks"),
    "states": partial(served, HYBRID),
    "states committed": partial(served, HYBRID, commits=True),
    "states beside KV": partial(served, BESIDE),
    "top k": partial(served, MODEL, sparse=sparse_of(TOP)),
    "pages": partial(served, MODEL, sparse=sparse_of(PAGES)),
    "experts": partial(served, EXPERTS),
    "experts without weights": partial(served, EXPERTS, free=["weights"]),
    "experts of Metal": partial(served, EXPERTS, "kernels={class: apple}"),
    "experts, skewed": partial(served, SPLIT, cards=2, routing=routed(SPLIT)),
    "experts on cards": partial(served, ALIKE, cards=2),
    "experts on many": partial(served, AWAY, cards=2, routing=routed(AWAY), steps=AROUND),
    "experts exchanged": partial(served, WHOLE, cards=2, steps=AROUND),
    **{f"tables of {name}, without {', '.join(without) or 'none'}":
       partial(tabled, model, cards, SMALL if model.experts in (None, EXPERTS.experts) else AROUND,
               *without)
       for name, model, cards in (
           ("attention", MODEL, 1), ("latents", LATENT, 1), ("windows", WINDOWS, 1),
           ("states", HYBRID, 1), ("states beside KV", BESIDE, 1), ("experts", EXPERTS, 1),
           ("experts on two cards", SPLIT, 2), ("experts on cards", AWAY, 2),
           ("experts exchanged", WHOLE, 2))
       for without in ((), ("product", "state_decode", "all_reduce", "experts"),
                       ("decode_attention", "prefill_attention", "latent_decode", "all_to_all"))},
    **{f"{many} stages, {name}": partial(staged, many, **options) for many, name, options in (
        (1, "alone", {}), (2, "as they are", {}), (3, "drained", {"drains": True}),
        (3, "more parts", {"micro_batches": 7}), (3, "exchanging", {"exchange": LINEAR}),
        (3, "waiting", {"exchange": LINEAR._replace(chunks=False)}),
        (3, "by cost", {"balance": "cost", "least_tokens": 32}),
        (2, "ahead", {"balance": "lookahead", "least_tokens": 32}),
        (2, "over a link", {"link": "ethernet-64"}),
    )},
    "drafts of a layer": partial(drafted, EXPERTS, 3, method="eagle"),
    "drafts of a layer with windows": partial(drafted, WINDOWS, 1, method="mtp"),
    "drafts of a model": partial(
        drafted, load_model("qwen3-8b"), 2, method="draft", draft_model="qwen3-0.6b"),
    "lent": partial(lent, MODEL), "lent, latent": partial(lent, LATENT),
    "lent, windows": partial(lent, WINDOWS), "lent, stages": partial(lent, HYBRID, 2),
}  # fmt: skip


RECORDS = Records(Path(__file__).with_name("steps.json"), SAID, lambda name: SAID[name]())


@pytest.mark.parametrize("name", SAID)
def test_a_step_takes_what_it_took(name: str) -> None:
    RECORDS.check(name)


if __name__ == "__main__":
    RECORDS.write()
