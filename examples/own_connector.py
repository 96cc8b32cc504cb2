"""What is a second pool of memory behind a link worth, where prompts begin alike? Adds a connector
that copies the common prefix of a request there when it ends, and back when the card has lost it.
Prints the mean time of a first token without and with it, and the tokens that came back.

    python examples/own_connector.py [PATH=VALUE ...]
    bankwise run sessions --plugin examples/own_connector.py \\
        --set base.serving.connectors.second_pool.capacity=32GB
"""

import sys
from collections.abc import Sequence
from typing import Any

import bankwise
from hwmodel.description.units import PositiveBytes
from hwmodel.specs.link import load_link
from policies.allocators.allocator import Demand
from policies.engines.connector import Ending, Match
from policies.engines.scheduled_step import Step
from policies.engines.step_delays import StepDelays
from policies.transfers.kv_connector import ConnectorOptions, KvConnector, Site
from policies.transfers.kv_link import IN, OUT, KvLink, Transfer


class SecondPoolOptions(ConnectorOptions):
    link: str = "pcie5-h100-batched"
    capacity: PositiveBytes = 64_000_000_000
    """Of each card, in bytes."""


class PoolDelays(StepDelays):
    """Copies take their bytes from the bandwidth of the card's memory."""

    def __init__(self, link: KvLink[Any], site: Site) -> None:
        self.link, self.steps = link, site.steps

    def stalls(self, step: Step, times: Any, efficiency: Any, cost: float) -> Any:
        if not (rate := self.link.rate()):
            return None
        return times.contended(rate, self.steps.bandwidth * efficiency.attention, cost)


class SecondPool(KvConnector):
    name, Options = "second_pool", SecondPoolOptions

    def __init__(self, options: SecondPoolOptions, site: Site) -> None:
        super().__init__(options, site)
        self.law, self.token_bytes = load_link(options.link), site.allocator.layout.token_bytes
        self.link = site.links.host()  # which tiers and swap take, too, where they are there
        self.delays = PoolDelays(self.link, site)
        self.kept: dict[int, int] = {}  # prefix -> its tokens; the first to come goes first
        self.there: list[int] = []  # requests whose prefix has come
        self.gone: list[int] = []  # those whose prefix has left
        self.came = 0

    @property
    def due_s(self) -> float:
        return self.now_s if self.there or self.gone else self.link.due_s

    def clock(self, now_s: float) -> None:
        super().clock(now_s)
        while self.link.now_s < now_s:  # to each transfer that lands, and on
            self.link.until(now_s)

    def move(self, tokens: int, request: int, comes: bool) -> None:
        self.clock(self.now_s)
        cards, size = self.site.links.places, tokens * self.token_bytes
        hosts = tuple(card.host for card in cards)
        landed = self.there if comes else self.gone
        self.link.put(Transfer(
            source=hosts if comes else cards, target=cards if comes else hosts,
            ends=(IN if comes else OUT,), request=request, way=self.name, bytes=size,
            alone_s=self.law.seconds(size), on_landed=lambda *_: landed.append(request),
        ))  # fmt: skip

    def matched(self, request: int, demand: Demand, cached: int, total: int) -> Match | None:
        end = min(self.kept.get(demand.prefix_id, 0), demand.prefix_tokens, total - 1)
        return Match(cached, end) if end > cached else None

    def allocated(
        self, request: int, demand: Demand, cached: int, total: int, match: Match | None
    ) -> None:
        if match is not None:
            self.came += match.end - match.start
            self.move(match.end - match.start, request, True)

    def arrived(self) -> Sequence[int]:
        there = self.there[:]
        self.there.clear()
        return there

    def finished(self, request: int, demand: Demand, tokens: int) -> Ending:
        prefix, tokens = demand.prefix_id, min(demand.prefix_tokens, tokens)
        if prefix < 0 or self.kept.get(prefix, 0) >= tokens:
            return Ending.FREE
        self.kept[prefix] = tokens
        while sum(self.kept.values()) * self.token_bytes > self.options.capacity:
            del self.kept[next(iter(self.kept))]
        self.move(tokens, request, False)
        return Ending.HELD  # until all of it has left

    def released(self) -> Sequence[tuple[int, Ending]]:
        gone = [(request, Ending.FREE) for request in self.gone]
        self.gone.clear()
        return gone

    def reset(self) -> None:
        self.link.clear(self.name)
        self.there.clear()
        self.gone.clear()

    def figures(self) -> dict[str, Any]:
        return {self.name: {"tokens": self.came}}


if __name__ == "__main__":
    bankwise.plugin(__file__)
    sets = ["policy=paged", "workload=shared-documents", "serving.kv_tokens=40000"]
    sets.append("model=deepseek-r1-distill-qwen-7b")
    for name, pool in {"alone": "{}", "with it": "{second_pool: {}}"}.items():
        own = [*sets, f"serving.connectors={pool}", *sys.argv[1:]]
        found = bankwise.simulate("smoke", set=own)["metrics"]
        came = found.get(SecondPool.name, {"tokens": 0})["tokens"]
        print(f"{name}: mean TTFT {found['ttft_s']['mean']:.2f} s, {came:.0f} tokens came back")
