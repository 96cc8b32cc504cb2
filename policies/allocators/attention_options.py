"""What the attention of a decode step reads of the KV, and what of it is kept: all, or less.

A model keeps its shape: these are ways to serve any model, as if it had been trained, or stood it,
so. What they cost in quality is not modelled. To add one, add a class and its line in `KINDS`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, SerializeAsAny

from hwmodel.description.description import DescriptionError, Strict, checked
from hwmodel.description.units import Bytes
from hwmodel.description.written import Chosen
from hwmodel.specs.attention import AttentionWindow
from hwmodel.specs.transformer import TransformerSpec
from policies.allocators.kv_sparse import Choice, Sparse

Count = Annotated[int, Field(ge=1)]
Seed = int | tuple[int, ...]
RUN = 64


class AttentionOptions(Strict):
    """Base of every kind's options; `name` is the registry key."""

    name: str

    def served(self, model: TransformerSpec) -> TransformerSpec:
        """The model that is served: with windows where only they are kept."""
        return model

    def sparse(self, model: TransformerSpec, seed: Seed) -> Sparse | None:
        """What is read of all that is kept; None: all of it. model: what a card holds."""
        return None


class Dense(AttentionOptions):
    """All stored tokens, in layers with a window those in it."""

    name: Literal["dense"] = "dense"


DENSE = Dense(name="dense")


class Choosing(Strict):
    """Part of the options of those that keep all tokens and choose, before `AttentionOptions` in
    their bases. The laws are those of `policies.allocators.kv_sparse`."""

    name: str
    choice: Choice = "uniform"
    """Which tokens are chosen (assumed)."""
    run: Count = RUN
    """clustered: tokens of a run (assumed)."""
    heads: Literal["together", "apart"] = "together"
    """Whether all KV heads of a card read the same tokens, or each its own."""

    @checked
    def _runs_are_clustered(self) -> None:
        if self.run != RUN and self.choice != "clustered":
            raise ValueError("run belongs to choice: clustered")

    def served(self, model: TransformerSpec) -> TransformerSpec:
        """See `AttentionOptions.served`."""
        return _without_windows(self.name, model)


class TopK(Choosing, AttentionOptions):
    """The best tokens by an index, a short key of every token that each layer keeps beside its KV
    and reads in every step. The defaults are DeepSeek-V3.2's sparse attention, over its latents or
    any other KV: `index_topk` 2,048, `index_n_heads` 64 and `index_head_dim` 128 of its
    config.json; 128 fp8 numbers and an fp32 scale a token (vLLM's DeepseekV32IndexerCache). There
    the scales of a block lie behind its numbers; here beside each token's (assumed). Every card
    of a replica has the whole index, as in vLLM. Not modelled: the indexer's weights (2 % of the
    active ones of DeepSeek-V3.2), the sorting, and that its products are in fp8."""

    name: Literal["top_k"] = "top_k"
    tokens: Count = 2048
    """That a step reads."""
    index_bytes: Bytes = 132
    """Of a token in each layer."""
    index_heads: Count = 64
    """That score a token."""
    index_dim: Count = 128
    """Of a head of the index."""
    prefill: Literal["dense", "selected"] = "dense"
    """What a prompt's tokens attend to. `selected`: each to so many tokens, as in DeepSeek-V3.2,
    after scoring all of them; the chunk still reads all that is stored, since nearly every token
    is chosen by one of its tokens (assumed)."""

    index_pages: Literal["packed", "padded"] = "packed"
    """What an index takes: its bytes, or a page as large as one of KV (vLLM-Ascend before it
    packed them, which cost 38.8 % of the tokens). Padding takes capacity alone; where it lies is
    not modelled."""

    def sparse(self, model: TransformerSpec, seed: Seed) -> Sparse:
        padding = 0
        if self.index_pages == "padded":
            padding = max(model.kv_layer_bytes - self.index_bytes, 0)
        return Sparse(
            self.tokens, 1, self.choice, self.run, 0, self.heads == "apart", self.index_bytes,
            2 * self.index_heads * self.index_dim, True, self.prefill == "dense", _seed(seed),
            padding,
        )  # fmt: skip


class Pages(Choosing, AttentionOptions):
    """The best pages by the smallest and largest of each number of their keys (Tang et al. 2024,
    Quest; mit-han-lab/quest): read of all finished pages where not all are chosen; the last page is
    always one of them. A page's summary is as long as two keys, at the places of its tokens, a part
    with each (assumed; Quest has pages of its own for them). Quest reads the first two
    layers whole, which is not modelled."""

    name: Literal["pages"] = "pages"
    page: Count = 16
    """Tokens of a page."""
    tokens: Count = 2048
    """Of all chosen pages (assumed)."""
    heads: Literal["together", "apart"] = "apart"
    """Quest has multi-head attention, of which each head chooses; of grouped queries each KV head
    (assumed)."""

    @checked
    def _some_pages(self) -> None:
        if self.page < 2 or self.tokens % self.page or self.tokens < 2 * self.page:
            raise ValueError("tokens: expected two pages or more, of two tokens or more each")

    def sparse(self, model: TransformerSpec, seed: Seed) -> Sparse:
        return Sparse(
            self.tokens, self.page, self.choice, self.run, 0, self.heads == "apart",
            -(-2 * model.kv_half_bytes // self.page),
            4 * model.heads * model.head_dim // self.page, False, True, _seed(seed),
        )  # fmt: skip


class WindowAndSinks(AttentionOptions):
    """The first tokens and the last ones; those between are freed (Xiao et al. 2024, StreamingLLM,
    mit-han-lab/streaming-llm: 4 and 2,000). Kept and freed as a sliding window of both together is,
    by `window_kv` of contiguous policies and in blocks of paged ones: as many bytes in as many
    runs, but that paged ones would keep the sinks' block besides. Prompts attend to what is
    kept."""

    name: Literal["window_and_sinks"] = "window_and_sinks"
    sinks: Annotated[int, Field(ge=0)] = 4
    """First tokens that stay."""
    window: Count = 2000
    """Last tokens that stay."""

    def served(self, model: TransformerSpec) -> TransformerSpec:
        return _windowed(_without_windows(self.name, model), self.sinks + self.window)


class Budget(Choosing, AttentionOptions):
    """So many tokens stay, the last ones and some of those before (Zhang et al. 2023, H2O: half and
    half; no scores are read here). `frees`, what becomes of the others:

    - `blocks`: blocks without a kept token. As every layer keeps other tokens in the blocks that
      all share, none is ever freed: the whole context is held, what is kept is read;
    - `slots`: each new token takes the slot of one that goes, a request holds `tokens`
      slots, all of which are read, as a sliding window as long does; prompts attend to what is
      kept."""

    name: Literal["budget"] = "budget"
    tokens: Annotated[int, Field(ge=2)] = 2048
    """That stay."""
    frees: Literal["blocks", "slots"] = "blocks"
    """Blocks without a kept token, or the slot of each token that goes."""
    heads: Literal["together", "apart"] = "apart"
    """H2O's heads keep tokens of their own."""

    @checked
    def _slots_are_all_read(self) -> None:
        if self.frees == "slots" and (self.choice != "uniform" or self.heads != "apart"):
            raise ValueError("choice and heads belong to frees: blocks; of slots all are read")

    def served(self, model: TransformerSpec) -> TransformerSpec:
        kept = super().served(model)
        return _windowed(kept, self.tokens) if self.frees == "slots" else kept

    def sparse(self, model: TransformerSpec, seed: Seed) -> Sparse | None:
        if self.frees == "slots":
            return None
        return Sparse(
            self.tokens, 1, self.choice, self.run, self.tokens // 2, self.heads == "apart",
            seed=_seed(seed),
        )  # fmt: skip


KINDS: dict[str, type[AttentionOptions]] = {
    "dense": Dense,
    "top_k": TopK,
    "pages": Pages,
    "window_and_sinks": WindowAndSinks,
    "budget": Budget,
}

_CHOSEN = Chosen("attention", lambda: dict(KINDS), DENSE.name, short=True)
AttentionSpec = Annotated[SerializeAsAny[AttentionOptions], _CHOSEN]
"""Field type: the options of any kind of attention, chosen by `name`."""


def _without_windows(name: str, model: TransformerSpec) -> TransformerSpec:
    """The model. Raises DescriptionError where it has windows."""
    if model.window is not None:
        raise DescriptionError(
            f"attention: {name} chooses among all tokens, and {model.name} has sliding "
            "windows; expected dense, or window: null"
        )
    return model


def _windowed(model: TransformerSpec, tokens: int) -> TransformerSpec:
    return model.model_copy(update={"window": AttentionWindow(tokens=tokens)})


def _seed(seed: Seed) -> tuple[int, ...]:
    return (seed,) if isinstance(seed, int) else seed
