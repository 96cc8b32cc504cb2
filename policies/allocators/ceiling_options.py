"""Options of the ceilings, which bound what a policy can reach and which others name."""

from __future__ import annotations

from typing import Any, Literal

from policies.allocators.allocator import PolicyOptions
from policies.allocators.compaction import ArenaOptions, RunOptions
from policies.allocators.kv_groups import WindowKv


class OracleOptions(RunOptions, ArenaOptions, PolicyOptions):
    """Options of `oracle`."""

    name: Literal["oracle"] = "oracle"


class IdealOptions(PolicyOptions):
    """Options of `ideal`. With both at `output` it is `oracle` without holes; each alone leaves one
    of its two costs away, and who comes first is served first in all of them."""

    name: Literal["ideal"] = "ideal"
    reserve: Literal["stored", "output"] = "stored"
    """What a request holds: what it has stored, or from its admission on what it will store. Where
    that is not free yet, the slots that others leave are its own before the next is admitted."""
    admit_on: Literal["input", "output"] = "input"
    """What must be free for a request to be admitted: its tokens to prefill, or all that it will
    store, so that smaller free space lies idle before the head of the line."""

    @property
    def kv_of_windows(self) -> WindowKv:
        return "ring"


def stored_at_the_end(prompt: Any, output: Any, ahead: int) -> Any:
    """Tokens that a request has stored at its end, an int or int64 (n,); the KV of the last token
    is stored only by steps that are scheduled `ahead` of knowing that it is the last."""
    return prompt + output - 1 + ahead
