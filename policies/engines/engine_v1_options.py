"""Options of engine v1 (vLLM's `EngineArgs` and `SchedulerConfig`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from hwmodel.description.description import checked
from policies.engines.engine_options import Count, EngineOptions
from policies.engines.vllm_version import (
    SHARED_BYTES,
    VERSIONS,
    Usage,
    VersionName,
    device_class,
)


class EngineV1Spec(EngineOptions):
    """Options of v1. Without `like`, those of vLLM 0.19 and 0.23 on a small device, scheduled
    synchronously and without the null block."""

    name: Literal["v1"] = "v1"
    like: VersionName | None = None
    """A version of vLLM, whose defaults the keys that are not given have, of `paged` too. Then each
    sample of a request is a request of its own."""
    usage: Usage = "server"
    """What vLLM runs as, on which its defaults hang with `like`."""
    max_num_batched_tokens: Count | None = 2048
    """Tokens a step may compute. None: by the class of the device (with `like`)."""
    admit_on: Literal["input", "chunk"] = "input"
    """What must fit for a request to be admitted: all its tokens to prefill (vLLM's
    `scheduler_reserve_full_isl`, on by default), or the chunk of this step (before that)."""
    async_scheduling: bool = False
    """Schedule a step before the output of the one before is known; a request that comes waits for
    the step that is made already, so that its tokens come a step later."""
    ends: Literal["stop", "length"] = "stop"
    """How outputs end under asynchronous scheduling: by a token that is not foreseen, so that each
    sample decodes one step too many (assumed: as most do that people chat with), or at a length
    that is known."""
    long_prefill_token_threshold: Annotated[int, Field(ge=0)] = 0
    """Tokens that a step prefills of one request at most, so that others join it; in 0.33 only
    while there are others (vLLM's PR 57951). 0: as many as the budget leaves (the default)."""
    prefill_schedule_interval: Count = 1
    """Steps from one with a prefill to the next, while requests decode and the last prefill left
    none in line. 1: no matter (the default). vLLM's `Scheduler.schedule`."""

    @model_validator(mode="before")
    @classmethod
    def completed(cls, data: Any) -> Any:
        """`data` with the keys that `like` decides filled in."""
        if not isinstance(data, dict) or data.get("like") not in VERSIONS:
            return data
        by_device = {"max_num_seqs": None, "max_num_batched_tokens": None}
        return {**by_device, **VERSIONS[data["like"]].engine, **data}

    @classmethod
    def policy_defaults(cls, given: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
        like = given.get("like")
        return {"paged": VERSIONS[like].paged} if like in VERSIONS else {}

    @classmethod
    def serving_defaults(cls, given: Mapping[str, Any]) -> Mapping[str, Any]:
        like = given.get("like")
        if like not in VERSIONS:
            return {}
        return {"gpu_memory_utilization": VERSIONS[like].gpu_memory_utilization}

    @property
    def sampler_bytes(self) -> int | None:
        return None if self.like is None else VERSIONS[self.like].sampler_bytes

    def non_torch_bytes(self, cards: int) -> int:
        if self.like is None:
            return 0
        return VERSIONS[self.like].non_torch_bytes + SHARED_BYTES * (cards > 1)

    def token_budget(self, longest: int) -> int:
        assert self.max_num_batched_tokens is not None  # given, or resolved by `on_device`
        return self.max_num_batched_tokens

    @property
    def ahead(self) -> int:
        return int(self.async_scheduling)

    @checked
    def _budget_covers_running(self) -> None:
        budget, most = self.max_num_batched_tokens, self.max_num_seqs
        if self.like is None and (budget is None or most is None):
            raise ValueError("max_num_seqs, max_num_batched_tokens: null only with like")
        if budget is not None and most is not None and budget < most:
            raise ValueError("max_num_batched_tokens: must not be below max_num_seqs")

    def on_device(self, capacity_bytes: int, device: str, max_model_len: int) -> EngineV1Spec:
        """See `EngineOptions.on_device`; vLLM's `EngineArgs`."""
        budget, most = self.max_num_batched_tokens, self.max_num_seqs
        if self.like is None or (budget is not None and most is not None):
            return self
        chosen = device_class(self.like, capacity_bytes, device)
        cap = chosen.max_num_seqs if most is None else most
        if budget is None:
            longest = min(self.max_model_len or max_model_len, max_model_len)
            budget = max(min(chosen.max_num_batched_tokens[self.usage], cap * longest), most or 1)
        cap = min(cap, budget) if most is None else most
        return self.model_copy(update={"max_num_seqs": cap, "max_num_batched_tokens": budget})
