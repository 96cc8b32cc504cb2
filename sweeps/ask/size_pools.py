"""How many replicas of a device serve a load with prefill and decode apart, and together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any

from hwmodel.description.description import DescriptionError
from hwmodel.description.files import steady
from hwmodel.specs.device import load_device
from hwmodel.specs.link import load_link
from sweeps.ask import pool_sizing as pools
from sweeps.ask.pool_sizing import MOST, Both, PoolQuestion, SidesApart
from sweeps.ask.question import ServedDevice, SloText, Text, Typed
from sweeps.ask.served import (
    Rate,
    ServedQuestion,
    answers,
    by_path,
    objective_record,
    wanted,
)
from sweeps.sections.section import Grid, Say, Section


@dataclass(frozen=True)
class PoolSized:
    """None: `MOST` replicas do not do. `least`: of each pool beside an ample one; `shares`: of the
    requests that attain the objective, in the order of `rows`."""

    question: PoolQuestion
    wanted: str
    """The load and the objective in words."""
    least: tuple[int | None, int | None]
    apart: SidesApart | None
    both: Both | None
    same: Both | None
    """As many replicas as `apart`, together."""
    shares: list[float]

    @property
    def rows(self) -> dict[str, SidesApart | Both]:
        """The arrangements that were run."""
        named = {"apart": self.apart, "together": self.both, "together, as many": self.same}
        return {name: each for name, each in named.items() if each is not None}

    def record(self) -> dict[str, Any]:
        """In JSON's types."""
        rows = zip(self.rows.items(), self.shares, strict=True)
        return {
            "device": self.question.described["device"], "requests_per_s": self.question.per_s,
            "link": self.question.link, "slo": objective_record(self.question.slo),
            "least_beside_ample": dict(zip(("prefill", "decode"), self.least, strict=True)),
            "arrangements": {
                name: {**each._asdict(), "attained": share} for (name, each), share in rows
            },
        }  # fmt: skip


class SizePoolsQuestion(ServedQuestion):
    """Count the replicas of a device with prefill and decode on different cards, and together.

    The fewest that meet an objective at a rate are sought for both, and as many together are tried
    as are needed apart.
    """

    device: ServedDevice
    """Accelerator of every replica: a shipped name or a YAML file."""
    link: Annotated[Text, Typed("LINK", ("links",))]
    """Link over which KV goes from prefill to decode: a shipped name or a YAML file."""
    slo: SloText
    """What 9 of 10 requests attain."""
    rate: Rate = "1"
    """Requests a second, or output tokens a second as 2000tokens/s."""

    @steady
    def answer(self) -> PoolSized:
        target = self.target_at(self.slo, self.rate)
        load_device(self.device, self.set)
        load_link(self.link)
        assert target.slo is not None
        described = {"device": self.device, "device_set": by_path(self.set), "model": self.model}
        serving = {"policy": target.policy, "weights": target.weights, "kv": target.kv}
        of = PoolQuestion(
            {**described, "workload": self.workload}, serving, target.slo, target.load,
            target.mean_output, self.link, self.cards or 1,
        )  # fmt: skip
        questions = [pools.ReplicaCount(of, "both", chunk) for chunk in pools.CHUNKS]
        questions += [pools.ReplicaCount(of, kind) for kind in ("prefill", "decode")]
        *both, prefill, decode = answers("least replicas", questions, self.workers, pools.least)
        if words := next((n for n in (*both, prefill, decode) if isinstance(n, str)), None):
            raise DescriptionError(words, f"{self.model} on {self.device}")
        done = [Both(n, chunk) for n, chunk in zip(both, pools.CHUNKS, strict=True) if n]
        together = min(done, default=None)
        apart = pools.fewest(of, prefill, decode) if prefill and decode else None
        same = None
        if apart is not None and together is not None and sum(apart) != together.replicas:
            same = together._replace(replicas=sum(apart))
        least = PoolSized(of, wanted(target), (prefill, decode), apart, together, same, [])
        return replace(least, shares=[pools.share(of, each) for each in least.rows.values()])

    def section(self, findings: PoolSized) -> Section:
        rows = []
        for (name, each), share in zip(findings.rows.items(), findings.shares, strict=True):
            apart = isinstance(each, SidesApart)
            many = each.prefill + each.decode if isinstance(each, SidesApart) else each.replicas
            what = f"{each[0]} prefill, {each[1]} decode" if apart else f"chunks of {each[1]:,}"
            cards = many * findings.question.cards
            rows.append([name, what, str(many), str(cards), f"{share:.0%}"])
        columns = ["", "replicas", "in all", "cards", "attain it"]
        title = f"Prefill and decode apart on {findings.question.described['device']}"
        return Section(title, [
            Say(findings.wanted, "question"), Grid("", columns, rows),
            Say(_verdict(findings), "verdict"),
        ])  # fmt: skip


def _verdict(findings: PoolSized) -> str:
    """Who needs fewer."""
    apart, both = findings.apart, findings.both
    if apart is None and both is None:
        return f"Neither meets it with {MOST} replicas."
    if apart is None or both is None:
        return (
            f"Only {'together' if apart is None else 'apart'} meets it, of {MOST} replicas at most."
        )
    many = apart.prefill + apart.decode
    if many == both.replicas:
        return f"Both need {many} replicas."
    fewer = "Apart" if many < both.replicas else "Together"
    return f"{fewer} needs fewer: {many} apart, {both.replicas} together."
