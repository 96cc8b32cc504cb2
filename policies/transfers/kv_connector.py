"""The contract of a connector that a description can name: KV that is somewhere else, and the time
that it takes.

Its hooks are those of `policies.engines.connector`, whose tables say when each is called. A
connector is added by one file and one line in `policies.transfers.connectors`, or by a plug-in
(docs/extend.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from hwmodel.description.description import Strict
from hwmodel.specs.device import Device
from hwmodel.specs.transformer import TransformerSpec
from policies.allocators.allocator import Allocator
from policies.engines.connector import Connector
from policies.memory.step import StepModel
from policies.memory.step_times import Efficiency
from policies.transfers.fabric import Links


class ConnectorOptions(Strict):
    """Base of the options of every connector."""

    keeps_on_host: ClassVar[bool] = False
    """Whether it keeps KV in the host's memory, which may fail (`faults.of: host`)."""

    @property
    def simulated(self) -> bool:
        """Whether what it moves is simulated beside the accesses of steps
        (`policies.memory.contention`)."""
        return False


@dataclass(frozen=True)
class Site:
    """Where a connector is built: one replica."""

    device: Device
    model: TransformerSpec
    """The shard of a card: bytes of KV and weights are those of a card."""
    allocator: Allocator
    """Which gives memory of each card, in slots of a token; `allocator.layout.token_bytes` is the
    bytes of one."""
    steps: StepModel
    """Times of steps, of the heaviest stage."""
    cards: int
    """Of the replica; each has a link of its own to whatever is elsewhere, and all move at once."""
    efficiency: Callable[[], Efficiency] = Efficiency
    """That of the memory, now."""
    stages: int = 1
    """Of the replica, each with as many of the cards, and with layers of its own."""
    links: Links = field(default_factory=Links)
    """Those of the replica, over which all of its KV moves."""


class KvConnector(Connector):
    """Base of all connectors that a description can name. It is built once for each replica, with
    its own memory empty.

    A run asks it in this order: at each event `clock`, then `arrived`, `lost` and `released`; for
    requests in line `passes_over`, `matched` and, once memory is reserved, `allocated`; `passed`
    and `stepped` after a step; `finished` and `forgotten` as requests end. Time goes on to `due_s`
    where nothing else happens sooner, so that it must say when its next transfer arrives. Steps
    wait for it where it has `delays`. examples/own_connector.py is a whole one.
    """

    name: ClassVar[str]
    """As a description names it."""
    Options: ClassVar[type[ConnectorOptions]] = ConnectorOptions
    """Its options."""
    holds_states: ClassVar[bool] = False
    """Whether it brings states of a hybrid model together with the KV."""
    now_s: float = 0.0
    """The time at its replica, seconds."""

    def __init__(self, options: Any, site: Site) -> None:
        """Raises DescriptionError for options that this replica cannot have."""
        self.options, self.site = options, site

    def clock(self, now_s: float) -> None:
        self.now_s = now_s

    def passed(self, end_s: float) -> None:
        self.now_s = end_s
