"""What is said of an engine: limits of its batch, and the order in which its line is admitted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import Field

from hwmodel.description.description import Strict, checked
from policies.engines.host_memory import Swapping
from policies.requests.requests import IntArray

Count = Annotated[int, Field(ge=1)]


class EngineOptions(Strict):
    """Options that every engine has; `name` is the engine's."""

    name: str
    max_num_seqs: Count | None = 256
    """Sequences that may run at once; each sample of a request is one. None: by the class of the
    device (v1 with `like`)."""
    max_tokens: Count | None = None
    """Outputs are cut at this length. None: the longest output of the workload (assumed: a
    well-informed operator)."""
    max_model_len: Count | None = None
    """Longest prompt + output. None: the model's."""
    batching: Literal["any", "same_tag", "static"] = "any"
    """Requests that are admitted together: any, or only those with the tag of the batch
    (`Classifies.tag`), which overtake the others. A batch is the prefill step in v0; in v1 all that
    is admitted until nothing runs. The head of the line is overtaken at most `max_num_seqs` times
    (assumed). `static`: nobody joins a batch before all of it has ended (FasterTransformer's
    batching of requests; Kwon et al. 2023, section 6.1); those that have ended cost nothing more
    (assumed)."""
    packing: Literal["arrival", "first_fit", "decreasing_first_fit"] = "arrival"
    """Request that is admitted next: the head of the line, or of those that fit among the first
    `packing_window` the first, or the one with the longest prediction (S3's batches; Jin et al.
    2023). The head of the line is overtaken at most `max_num_seqs` times (assumed)."""
    packing_window: Count = 64
    """Requests in line among which packing chooses (assumed)."""
    too_long: Literal["error", "drop"] = "error"
    """What to do with requests that can never fit (assumed)."""

    def cut(self, output_tokens: IntArray) -> IntArray:
        """Outputs as the engine cuts them, int64 (n,)."""
        return np.minimum(output_tokens, self.max_tokens or np.iinfo(np.int64).max)

    def token_budget(self, longest: int) -> int:
        """Most tokens of one step, where the longest request has `longest`."""
        raise NotImplementedError

    @property
    def sequence_cap(self) -> int:
        """`max_num_seqs`, where it does not hang on the device or was resolved by `on_device`."""
        assert self.max_num_seqs is not None
        return self.max_num_seqs

    def times(self, batches: int) -> Self:
        """The options of so many batches in flight: as many times the sequences and tokens."""
        most = {"max_num_seqs": self.max_num_seqs, "max_num_batched_tokens": None}
        most["max_num_batched_tokens"] = getattr(self, "max_num_batched_tokens", None)
        changes = {key: batches * count for key, count in most.items() if count is not None}
        return self if batches == 1 else self.model_copy(update=changes)

    @classmethod
    def policy_defaults(cls, given: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
        """Policy -> defaults of its options that it has under this scheduler. given: the options of
        the scheduler as they are written."""
        return {}

    @classmethod
    def serving_defaults(cls, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Defaults of `ServingSpec` under this scheduler; given: as of `policy_defaults`."""
        return {}

    @property
    def sampler_bytes(self) -> int | None:
        """Of a sequence and a number of the vocabulary. None: no version says it."""
        return None

    def non_torch_bytes(self, cards: int) -> int:
        """What each of `cards` that share a model has beside weights, activations and KV."""
        return 0

    @property
    def swapping(self) -> Swapping | None:
        """How KV of preempted requests is copied to the memory of the host. None: it is not."""
        return None

    @property
    def ahead(self) -> int:
        """See `Limits.ahead`."""
        return 0

    def on_device(self, capacity_bytes: int, device: str, max_model_len: int) -> EngineOptions:
        """The options with what hangs on the device, of `capacity_bytes` a card, filled in."""
        return self

    @checked
    def _one_order_of_the_line(self) -> None:
        if self.packing != "arrival" and self.batching != "any":
            raise ValueError("packing: only with batching: any")
