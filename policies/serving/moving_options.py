"""Options of controllers, which look at the replicas of a node and act."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from hwmodel.description.description import Strict
from hwmodel.description.units import Nanoseconds
from hwmodel.specs.virtual_memory import Frame

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]


class ControllerOptions(Strict):
    """Base of the options of every controller."""

    every_s: Seconds = 0.1
    """Time between two looks."""

    @property
    def kv_frame(self) -> int | None:
        """Bytes of the frames in which it needs KV to be mapped; None: as the policy has it."""
        return None


class DroppingSpec(ControllerOptions):
    """KunServe: cards drop the copies of parameters that others have (Cheng et al. 2024,
    arXiv 2412.18169v4; defaults of SJTU-IPADS/kunserve)."""

    link: str
    """Between cards: a shipped link, or a file."""
    every_s: Seconds = 0.1
    """Time between two looks at the queues."""
    restore_below: Annotated[float, Field(ge=0, lt=1)] = 0.5
    """A group's copies come back when its KV takes less than this share of what its cards had
    before. 0: never."""
    map_time: Nanoseconds = 5e6
    """To map the frames of dropped layers behind the KV (the paper: 5 ms)."""
    frame: Frame | None = 2 << 20
    """What is mapped at once (CUDA: 2 MiB): each layer's K and V have whole ones. None: the memory
    of a group is laid out anew."""
    exchange: Literal["chunks", "whole"] = "chunks"
    """How KV goes over a link that activations use, too: one chunk after each, as long as a stage
    computes (the paper), or a request at once, for which they wait (assumed of others)."""
    block: Count = 256
    """Tokens of a block that is exchanged."""

    @property
    def kv_frame(self) -> int | None:
        return self.frame


class LendingSpec(ControllerOptions):
    """Infinite-LLM: cards keep parts of the KV of each other's requests (Lin et al. 2024,
    arXiv 2401.02669v2). Its thresholds are not public: those here are assumed."""

    link: str
    """Between cards: a shipped link, or a file."""
    every_s: Seconds = 0.5
    """Time between two plans (assumed)."""
    spare: Annotated[float, Field(ge=0, lt=1)] = 0.01
    """Share of a card's slots that plans leave free, for tokens to come (assumed)."""
    step_tokens: Count | None = None
    """Tokens of running requests that a card copies to lenders beside a step, which ends no sooner
    (the paper: 16). None: as many as the link carries in the time of the step."""
    block: Count = 256
    """Tokens of a piece that is sent, of a layer's K or V (assumed)."""


class MigrationSpec(ControllerOptions):
    """Llumnix: running requests move from full cards to empty ones (Sun et al. 2024,
    arXiv 2406.03243; defaults of AlibabaPAI/llumnix)."""

    link: str
    """Between cards: a shipped link, or a file."""
    every_s: Seconds = 0.05
    """Time between two pairings."""
    freeness: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 3.0
    """Free blocks a request: a card below is paired with one above."""
    last_blocks: Count = 16
    """With fewer blocks left to copy the request stops."""
    most_stages: Count = 3
    """Copies while it decodes, at most; then it stays."""
