"""Which way to have a context's KV again on a device: `bankwise transfer LINK --restore`."""

from __future__ import annotations

from dataclasses import dataclass

from hwmodel.description.description import DescriptionError
from hwmodel.specs.device import Device
from hwmodel.specs.link import LinkSpec
from hwmodel.specs.transformer import TransformerSpec
from policies.memory.step import StepModel
from policies.memory.step_times import Efficiency
from policies.serving.rates import closed_form, require_room
from policies.transfers.pieces import KNOWN_LAYOUTS, pages
from policies.transfers.restoring import Restored, fetch, hcache, recompute
from policies.transfers.transfer import TransferEnd


@dataclass(frozen=True)
class RestoreQuestion:
    """What is to be restored. `kinds`: pages of the host's pool and of the card's."""

    device: Device
    model: TransformerSpec
    link: LinkSpec
    block: int
    kinds: tuple[str, str]


@dataclass(frozen=True)
class RestoreAnswer:
    """Of one context, each way by its name."""

    tokens: int
    ways: dict[str, Restored]

    @property
    def first(self) -> str:
        """The fastest."""
        return min(self.ways, key=lambda name: self.ways[name].total_s)


def restore(question: RestoreQuestion, contexts: list[int]) -> list[RestoreAnswer]:
    """Each context's ways: `recompute`, `fetch KV`, `fetch KV, whole blocks` (all layers of a block
    together) and, where K and V are kept, `HCache`.

    Memory efficiencies are the closed-form limits that `bankwise fit` uses. Raises
    DescriptionError where the model does not fit a card with the context, has windows, or is longer
    than the model allows.
    """
    device, model = question.device, question.model
    longest = max(contexts)
    if longest > model.max_position:
        raise DescriptionError(
            f"{longest:,} tokens are more than the {model.max_position:,} of {model.name}"
        )
    require_room(device, model, longest, "restored")
    steps = StepModel(device, model)
    efficiency = closed_form(device)
    return [_answer(question, steps, efficiency, tokens) for tokens in contexts]


def _answer(
    question: RestoreQuestion, steps: StepModel, efficiency: Efficiency, tokens: int
) -> RestoreAnswer:
    device, model, link = question.device, question.model, question.link
    blocks = -(-tokens // question.block)
    tables = [pages(kind, blocks, seed) for seed, kind in enumerate(question.kinds)]

    def fetched(layout: str | None) -> Restored:
        dims = device.paging.kv_layout if layout is None else KNOWN_LAYOUTS[layout]
        ends = [TransferEnd(dims, question.block, table) for table in tables]
        return fetch(link, model, tokens, ends[0], ends[1])

    ways = {
        "recompute": recompute(steps, tokens, efficiency),
        "fetch KV": fetched(None),
        "fetch KV, whole blocks": fetched("block_layer_kv_token"),
    }
    if model.latent is None:
        ways["HCache"] = hcache(
            link, device, model, tokens, ways["recompute"], ways["fetch KV"]
        )  # fmt: skip
    return RestoreAnswer(tokens, ways)
