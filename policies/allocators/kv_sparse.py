"""Which stored tokens a decode step reads of a request, where its attention does not read all.

Tokens are chosen by the page (one token, or consecutive tokens of the request). Which: laws
(assumed; no public trace of chosen tokens is known to us):

- `uniform`: every page is as likely as any other;
- `recency`: weights fall as 1 / age in pages, drawn without replacement one after the other
  (Efraimidis and Spirakis 2006);
- `clustered`: runs of `run` tokens, each as likely as any other; the last one is cut.

A request has draws of its own in each layer, and in each KV head where heads choose apart; they are
the same in every step, so that nearly all of what is chosen is chosen again. DRAM does not see
that: other layers are read in between.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from policies.requests.requests import IntArray

Choice = Literal["uniform", "recency", "clustered"]


@dataclass(frozen=True)
class Sparse:
    """What a layer's attention reads of a request of n stored tokens: n, or at most `tokens`.

    page: tokens chosen together; the last page, unfinished, is always one of them.
    recent: the last tokens, which are always chosen.
    apart: whether each KV head chooses for itself.
    index_bytes, index_flops: of each stored token in each layer, what is read and computed to
    choose; so many bytes are written with each token.
    always: whether that is also read where all tokens are chosen.
    whole_prompts: whether a prompt's tokens attend to all before them.
    padding: bytes of a token in a layer that the index takes beside its own.
    """

    tokens: int
    page: int = 1
    choice: Choice = "uniform"
    run: int = 64
    recent: int = 0
    apart: bool = False
    index_bytes: int = 0
    index_flops: int = 0
    always: bool = False
    whole_prompts: bool = True
    seed: tuple[int, ...] = field(default=(0,), compare=False)
    padding: int = 0

    @property
    def _most(self) -> int:
        """Finished pages that are chosen at most."""
        return self.tokens // self.page - (self.page > 1)

    def read(self, stored: Any) -> Any:
        """Tokens read of so many that are stored: an int, or int64 of any shape."""
        pages, rest = np.divmod(stored, self.page)
        return np.minimum(pages, self._most) * self.page + rest

    def indexed(self, stored: Any) -> Any:
        """Tokens whose index is read: those of finished pages."""
        pages = stored // self.page
        return np.where(self.always | (pages > self._most), pages * self.page, 0)

    def steps(self, stored: IntArray, rounds: int) -> tuple[Any, Any]:
        """(tokens read, tokens whose index is read) by requests together in steps in which each
        grows by a token: ints where it is one step, else int64 (rounds,)."""
        if rounds == 1:
            return int(self.read(stored).sum()), int(self.indexed(stored).sum())
        grown = stored + np.arange(rounds)[:, None]
        return self.read(grown).sum(axis=1), self.indexed(grown).sum(axis=1)

    def verified(self, stored: IntArray, rows: IntArray) -> tuple[int, int]:
        """Of steps of `rows` tokens each behind so many, int64 (n,): (all but the first rows and
        the tokens that they attend to, themselves included; tokens whose index is scored). The
        rows of a request choose the same tokens (assumed), and see each other."""
        chosen, scored = self.read(stored), self.indexed(stored)
        among = rows * (rows + 1) // 2 - 1
        return int(((rows - 1) * chosen + among).sum()), int((rows * scored).sum())

    def pairs(self, start: int, tokens: int) -> int:
        """Pairs of tokens that a chunk of a prefill attends to after `start` that are stored."""
        growing = tokens  # tokens that see all before them
        if not self.whole_prompts:
            growing = min(max(self.tokens - start, 0), tokens)
        seen = growing * start + growing * (growing + 1) // 2
        return seen + (tokens - growing) * self.tokens

    def runs(self, stored: int, request: int, layer: int, head: int) -> tuple[IntArray, IntArray]:
        """(first token, behind the last) of the runs that are read, int64 (n,), in order."""
        pages, rest = divmod(stored, self.page)
        taken = np.ones(pages + (rest > 0), np.int8)
        if pages > self._most:
            recent = min(self.recent // self.page, self._most)
            others, wanted = pages - recent, self._most - recent
            key = (*b"policies.attention", request, layer, head)
            rng = np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=key))
            taken[:others] = self._drawn(others, wanted, recent, rng)
        edges = np.flatnonzero(np.diff(taken, prepend=0, append=0)) * self.page
        return edges[::2], np.minimum(edges[1::2], stored)

    def _drawn(self, pages: int, wanted: int, recent: int, rng: np.random.Generator) -> Any:
        """1 for each of the `wanted` of these pages, behind which come `recent` ones."""
        taken = np.zeros(pages, np.int8)
        if not wanted:
            return taken
        if self.choice == "clustered":
            each = max(self.run // self.page, 1)
            run = (np.arange(pages) + rng.integers(each)) // each
            order = np.argsort(rng.random(int(run[-1]) + 1))
            place = np.empty(len(order), np.int64)
            place[order] = np.arange(len(order))
            chosen = np.argsort(place[run], kind="stable")[:wanted]
        else:
            late = rng.exponential(size=pages)
            if self.choice == "recency":
                late *= np.arange(pages + recent, recent, -1)
            chosen = np.argpartition(late, wanted - 1)[:wanted]
        taken[chosen] = 1
        return taken
