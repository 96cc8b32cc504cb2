"""Speculative decoding: how many drafts a step verifies, and how many of them hold.

A step computes the last token of a sequence and its k drafts as k + 1 rows. Drafts are kept up to
the first that the model would not have drawn, and one token more comes from the model itself
(Leviathan et al. 2023). P(i), the probability that the first i drafts hold, is a table: a constant
rate is 7 to 30 % high at four drafts (`GOLDEN`). Acceptance lengths follow, AL(k) = 1 + P(1) + ...
+ P(k). Lookup of n-grams always proposes k tokens (assumed).
"""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from hwmodel.description.description import Strict, checked, nearest
from policies.allocators.allocator import Lookahead
from policies.requests.requests import IntArray

Method = Literal["ngram", "draft", "eagle", "mtp"]

GOLDEN: dict[str, tuple[float, ...]] = {
    "qwen3.5-397b-mtp": (1.93, 2.73, 3.39, 3.97, 4.41, 4.80, 5.04, 5.21),
    "glm-5.2-mtp": (1.84, 2.50, 2.99, 3.33, 3.61, 3.78, 3.91, 4.06),
    "kimi-k2.5-eagle3": (1.83, 2.43, 2.88, 3.24, 3.46, 3.62, 3.71, 3.77),
    "kimi-k3-dspark": (1.84, 2.45, 2.87, 3.22, 3.44, 3.54, 3.78, 3.88),
    "minimax-m3-eagle3": (1.78, 2.38, 2.83, 3.11, 3.35, 3.45, 3.53, 3.74),
    "deepseek-v4-pro-mtp": (1.79, 2.27, 2.49, 2.54, 2.55, 2.55, 2.54, 2.58),
    "deepseek-v4-pro-dspark": (1.84, 2.51, 3.01, 3.36, 3.61, 3.77, 3.73, 3.47),
}
"""AL(1) to AL(8) of coding, thinking on: SemiAnalysis InferenceX, `golden_al_distribution`
(SPEED-Bench)."""


def positions(lengths: tuple[float, ...]) -> list[float]:
    """P(1) to P(k) of measured AL(1) to AL(k), whose sum is AL(k) - 1. Where measured differences
    rise or are negative, neighbours share their mean: P(i) cannot rise with i."""
    pools: list[tuple[float, int]] = []
    for each in np.diff(lengths, prepend=1.0).tolist():
        pools.append((each, 1))
        while len(pools) > 1 and (pools[-1][0] < 0 or _mean(pools[-1]) > _mean(pools[-2])):
            total, many = pools.pop()
            pools[-1] = (pools[-1][0] + total, pools[-1][1] + many)
    return [_mean(pool) for pool in pools for _ in range(pool[1])]


def _mean(pool: tuple[float, int]) -> float:
    return pool[0] / pool[1]


class SpeculationSpec(Strict):
    """How tokens are drafted, and how many of them hold."""

    method: Method
    """`ngram`: looked up in the text, on the host, at no cost (assumed). `draft`: by a small model.
    `eagle`, `mtp`: by one layer like the model's last, behind its hidden states, with its head."""
    tokens: Annotated[int, Field(ge=1, le=16)]
    """Drafts of a sequence in each step, k."""
    acceptance: str | list[float]
    """P(1), P(2), ...: the probability that the first i drafts hold; or a name of `GOLDEN`."""
    draft_model: str | None = None
    """With `draft`: a shipped model, or the path of one."""

    @checked
    def _complete(self) -> None:
        table = self.acceptance
        if isinstance(table, str):
            if table not in GOLDEN:
                raise ValueError(f"acceptance: {nearest(table, [*GOLDEN])}")
            table = list(GOLDEN[table])
        elif any(not 0 <= p <= 1 for p in table) or table != sorted(table, reverse=True):
            raise ValueError("acceptance: expected probabilities that never rise, such as [0.8, 0]")
        if len(table) < self.tokens:
            raise ValueError(f"tokens: at most {len(table)}, the positions of acceptance")
        if (self.draft_model is None) == (self.method == "draft"):
            if self.method == "draft":
                raise ValueError("draft_model: is missing, which method: draft needs")
            raise ValueError("draft_model: only with method: draft")

    @property
    def holds(self) -> list[float]:
        """P(1) to P(k)."""
        if isinstance(self.acceptance, str):
            return positions(GOLDEN[self.acceptance][: self.tokens])
        return self.acceptance[: self.tokens]

    def slots(self, ahead: int, version: str | None) -> Lookahead:
        """What allocators keep, with so many steps under way, of a version of vLLM. EAGLE and MTP
        keep KV of a token that hangs on the next one too, so that the last block of a hit does not
        serve (vLLM: `needs_eagle_block_drop`)."""
        hit: Literal["whole", "less_one", "next_known"] = "whole"
        if self.method in ("eagle", "mtp"):
            hit = "next_known" if version == "0.33" else "less_one"
        return Lookahead(self.tokens * (1 + ahead), self.lookahead, hit)

    @property
    def lookahead(self) -> int:
        """Slots that the drafter writes behind the rows of a step (vLLM:
        `VllmConfig.num_lookahead_tokens`)."""
        return 0 if self.method == "ngram" else self.tokens


class DrawnDrafts(NamedTuple):
    """Drafts that hold at each output token of each request: `held` uint8 (all output tokens,),
    `first` int64 (n,) of each request."""

    held: NDArray[np.uint8]
    first: IntArray

    def at(self, requests: IntArray, made: IntArray) -> IntArray:
        """int64 (m,): how many of endless drafts behind the `made` tokens of `requests` hold."""
        return self.held[self.first[requests] + made].astype(np.int64)


def draw(spec: SpeculationSpec, output: IntArray, seed: int | tuple[int, ...]) -> DrawnDrafts:
    """A draw for each output token, the same under every policy. output: int64 (n,), tokens."""
    key = tuple(b"policies.speculation")
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))
    first = np.cumsum(output + 1) - output - 1
    drawn = rng.random(int((output + 1).sum()), np.float32)
    held = sum((drawn < each).astype(np.uint8) for each in spec.holds)
    return DrawnDrafts(np.asarray(held, np.uint8), first)
