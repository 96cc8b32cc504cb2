"""All links of a serving, and all KV that moves: links between cards, of each card to its host, and
of a host to its drive.

    card 0  -- out, in --  network  -- out, in --  card 1
      | host link                                    | host link
    host 0  -- drive link --  drive 0              host 1

Each transfer (`policies.transfers.kv_link.Transfer`) is put on one link, and lands once or is lost
once. The network is one link whose ends are each card's way out and way in, so that transfers of
pools, migration, dropping and lending wait for each other there; its time is that of the event
core, and steps of the cards at both ends are interrupted where what moves there changes. A link to
a host has the time of its card, whose connectors go on with it (tiers, swap).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from policies.engines.host_memory import HostMemory
from policies.transfers.kv_link import IN, OUT, KvLink, KvPlace, Transfer
from policies.transfers.shared_memory import SharedMemory


class Fabric:
    """Owns the links."""

    def __init__(self) -> None:
        self.network: KvLink[Transfer] = KvLink(apart=True)
        self._memories: dict[str, SharedMemory] = {}
        self._links: dict[KvPlace, KvLink[Transfer]] = {}

    def at(self, *places: KvPlace) -> Links:
        """What a replica on these cards has of it."""
        return Links(self, places)

    def link(self, place: KvPlace, far_bandwidth: float = math.inf) -> KvLink[Transfer]:
        """That which ends at a host, or at a drive. far_bandwidth: see `KvLink`; where several ask,
        the least."""
        link = self._links.setdefault(place, KvLink())
        link.far_bandwidth = min(link.far_bandwidth, far_bandwidth)
        return link

    def memory(self, node: str, dram: HostMemory | None) -> SharedMemory | None:
        """What the hosts of a node's cards have in common; None: it carries all that links do."""
        if dram is None:
            return None
        return self._memories.setdefault(node, SharedMemory(dram.bandwidth))

    @property
    def hosts(self) -> list[KvLink[Transfer]]:
        """All links to hosts, and of these to drives."""
        return list(self._links.values())


@dataclass(frozen=True)
class Links:
    """Those of one replica, on these cards."""

    fabric: Fabric = field(default_factory=Fabric)
    places: tuple[KvPlace, ...] = (KvPlace("", 0),)

    @property
    def place(self) -> KvPlace:
        """The first card, which stands for all that move their shares at the same time."""
        return self.places[0]

    @property
    def network(self) -> KvLink[Transfer]:
        """See `Fabric`."""
        return self.fabric.network

    def host(self, far_bandwidth: float = math.inf) -> KvLink[Transfer]:
        """Between the card and its host."""
        return self.fabric.link(self.place.host, far_bandwidth)

    @property
    def drive(self) -> KvLink[Transfer]:
        """Between the host and its drive."""
        return self.fabric.link(self.place.drive)

    def copying(self) -> float:
        """Bytes a second that transfers over the network read and write on each of these cards, as
        they say; where an end of a card is free, of the greatest of those, too, that begin there
        soon, whose cards are between two steps for them: an end carries one at a time."""
        network, own = self.network, set(self.places)
        there: dict[Transfer, float] = {}
        planned = network.planned
        for lane in ((place, way) for place in self.places for way in (OUT, IN)):
            moving = network.at(lane)
            ones = [each for each in planned if lane in each.ends] if moving is None else [moving]
            loads = {
                each: each.read * (not own.isdisjoint(each.source))
                + each.written * (not own.isdisjoint(each.target))
                for each in ones
                if moving is None or each.speed
            }
            if loads:
                there |= [max(loads.items(), key=lambda load: load[1])]
        return sum(there.values())
