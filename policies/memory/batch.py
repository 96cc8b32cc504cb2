"""A decode batch at the places where an allocator in use puts it.

The allocator first serves and forgets requests of other lengths (`age` of them), as many at once as
fit, each growing by a block's worth of tokens in turn; then all leave, and the batch comes: prompts
at once, outputs a few tokens of each sequence in turn. What this lacks of a serving run is its
engine: order of admission, and preemption.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field

from hwmodel.description.description import Strict, checked
from policies.allocators.allocator import Allocator, Demand
from policies.allocators.attention_options import DENSE, AttentionSpec
from policies.allocators.kv_layout import DoesNotFit
from policies.allocators.paged import PagedOptions
from policies.allocators.registry import PolicySpec, default_policy
from policies.predictors.prediction import Prediction
from policies.requests.requests import IntArray

Count = Annotated[int, Field(ge=1)]

TURN_TOKENS = 16
"""Tokens that each sequence grows by in its turn: vLLM's block."""


class BatchSpec(Strict):
    """So many sequences of one length, placed by one policy."""

    policy: PolicySpec = default_policy()
    """The allocator that placed them."""
    attention: AttentionSpec = DENSE
    """What is read of it."""
    sequences: Count = 16
    """That decode."""
    context: Count = 2048
    """Tokens that each has stored before the step; half of them are its prompt (assumed)."""
    age: Annotated[int, Field(ge=0)] = 2000
    """Requests that come and go before; their lengths are uniform from half to three halves of
    `context` (assumed). After about 2,000 a queue of free blocks has lost its order."""

    @checked
    def _holds_no_states(self) -> None:
        if isinstance(self.policy, PagedOptions) and self.policy.states is not None:
            raise ValueError("policy.states: only where requests are served; a batch is KV alone")

    def requests(self) -> int:
        """How many requests the allocator must know."""
        return self.age + self.sequences


def place(allocator: Allocator, spec: BatchSpec, rng: np.random.Generator) -> IntArray:
    """Give the batch its memory, one token beyond `context` each; its requests, int64 (sequences,).

    allocator: empty, for `spec.requests()` requests. Raises DescriptionError if it has no room.
    """
    _use(allocator, rng.integers(spec.context // 2, spec.context * 3 // 2 + 1, spec.age))
    batch = np.arange(spec.age, spec.requests())
    prompt = max(spec.context // 2, 1)
    output = spec.context + 1 - prompt
    for request in batch.tolist():
        if not allocator.reserve(request, _demand(prompt, output), prompt):
            raise _no_room(allocator, spec)
    for begin in range(0, output, TURN_TOKENS):
        tokens = min(TURN_TOKENS, output - begin)
        for request in batch.tolist():
            if not allocator.grow(request, tokens):
                raise _no_room(allocator, spec)
    return batch


def _use(allocator: Allocator, lengths: IntArray) -> None:
    """Requests of these lengths come, grow and go, as many at once as fit."""
    left: dict[int, int] = {}
    coming = 0
    while coming < len(lengths) or left:
        while coming < len(lengths) and _comes(allocator, coming, int(lengths[coming])):
            left[coming] = int(lengths[coming]) - max(int(lengths[coming]) // 2, 1)
            coming += 1
        if not left:  # it does not fit the empty device
            coming += 1
        for request in list(left):
            tokens = min(TURN_TOKENS, left[request])
            left[request] -= tokens
            # a request without room leaves early
            if not left[request] or not allocator.grow(request, tokens):
                allocator.release(request)
                del left[request]


def _comes(allocator: Allocator, request: int, length: int) -> bool:
    prompt = max(length // 2, 1)
    return allocator.reserve(request, _demand(prompt, max(length - prompt, 1)), prompt)


def _demand(prompt: int, output: int) -> Demand:
    return Demand(prompt, 0, Prediction(float(output)), output=output + 1)


def _no_room(allocator: Allocator, spec: BatchSpec) -> DoesNotFit:
    return DoesNotFit(
        f"batch: {spec.sequences} sequences of {spec.context} tokens do not fit the "
        f"{allocator.slots} token slots under {spec.policy.name}"
    )
