"""What a sweep compares its competitors by, and a study searches for: a line an objective.

Above capacity a latency from arrival, and with it attainment, depends on the length of the run.
They are compared where the load is below capacity, or at `latency_at`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from hwmodel.description.description import nearest
from sweeps.analyse.figures import (
    ATTAINMENT,
    FIGURES,
    GOODPUT,
    KV_RATE,
    PER_KUSD,
    PER_MM2,
    PER_WATT,
    THROUGHPUT,
    Figure,
)  # fmt: skip
from sweeps.analyse.figures import TOKENS_PER_JOULE as JOULE
from sweeps.analyse.statistics import log_ratios

Need = Literal["below capacity", "goodput", "slo", "energy", "price", "draw", "area"]
"""What a sweep must have: a load below capacity or `latency_at`, `load.goodput`, `slo`, memory that
is described, a card whose price, draw or area is given."""


@dataclass(frozen=True)
class Objective:
    """A metric, and which way it is better."""

    metric: str
    words: str
    """Heading of charts, with the unit."""
    unit: str
    says: str
    """What a competitor does, with {} for the number."""
    digits: int = 1
    scale: float = 1.0
    less: bool = False
    """Less is better."""
    needs: tuple[Need, ...] = ()
    best: str = ""
    """What the winner does, where `words` do not say it."""
    more: str = "more"
    """How a better number compares, where more is better."""

    @property
    def direction(self) -> Literal["maximize", "minimize"]:
        """Which way it is better, as Optuna has it."""
        return "minimize" if self.less else "maximize"

    @property
    def record(self) -> dict[str, str]:
        """As a config has it: `metric` and `direction`."""
        return {"metric": self.metric, "direction": self.direction}

    @property
    def is_rate(self) -> bool:
        """Whether it is what the causes of a gap are known of."""
        return self.metric == THROUGHPUT

    @property
    def figure(self) -> Figure:
        """Its column."""
        found = (figure for figure in FIGURES if figure.metric == self.metric)
        own = Figure(self.metric, self.words.replace(",", ""), self.digits, self.scale)
        return next(found, own)

    @property
    def wins(self) -> str:
        """What the best does."""
        return self.best or f"has the {'least' if self.less else 'largest'} {self.noun}"

    @property
    def noun(self) -> str:
        """Its name in a sentence, without the unit."""
        name = self.words.split(",")[0]
        return name if name[1].isupper() else name[0].lower() + name[1:]

    def text(self, value: float) -> str:
        """A value in its unit."""
        return replace(self.figure, digits=self.digits, scale=self.scale).text(value)

    def advantages(self, ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
        """ln of how much better ours are, of each replication; all must be above zero."""
        return log_ratios(theirs, ours) if self.less else log_ratios(ours, theirs)

    def below_capacity(self) -> Objective:
        """The same of a second pass at `latency_at`, where there is one of it."""
        first = self.metric.split(".")[0]
        known = ("ttft_s", "tpot_s", "latency_s", "slo")
        return replace(self, metric=f"at_share.{self.metric}") if first in known else self


def _latency(metric: str, noun: str, *needs: Need) -> Objective:
    unit, scale = ("ms", 1000.0) if metric.startswith("tpot") else ("s", 1.0)
    digits = 1 if unit == "ms" else 2
    found = Objective(metric, f"{noun}, {unit}", unit, "", digits, scale, True, needs)
    return replace(found, says=f"has a {found.noun} of {{}} {unit}")


SERVED = Objective(
    THROUGHPUT, "Output tokens/s", "tok/s", "serves {} output tokens/s", best="serves the most"
)
KV_READ = Objective(
    KV_RATE, "KV read, GB/s", "GB/s", "reads KV at {} GB/s", best="reads fastest", more="faster"
)
OBJECTIVES: dict[str, Objective] = {
    "throughput": SERVED,
    "ttft_p50": _latency("ttft_s.p50", "TTFT p50", "below capacity"),
    "ttft_p99": _latency("ttft_s.p99", "TTFT p99", "below capacity"),
    "tpot_p50": _latency("tpot_s.p50", "TPOT p50"),
    "tpot_p99": _latency("tpot_s.p99", "TPOT p99"),
    "latency_p99": _latency("latency_s.p99", "Latency p99", "below capacity"),
    "goodput": Objective(
        GOODPUT, "Goodput, requests/s", "requests/s", "carries {} requests/s within the SLO", 3,
        needs=("goodput",), best="carries the most within the SLO",
    ),
    "attainment": Objective(
        ATTAINMENT, "SLO attainment, %", "%", "keeps the SLO for {} % of requests", 1, 100.0,
        needs=("slo", "below capacity"),
    ),
    "tokens_per_joule": Objective(
        JOULE, "Tokens/J of DRAM", "tokens/J", "makes {} tokens/J of DRAM", 2, needs=("energy",),
    ),
    "per_dollar": Objective(
        PER_KUSD, "Output tokens/s a thousand dollars", "tok/s a thousand dollars",
        "serves {} output tokens/s a thousand dollars of cards", 1,
        needs=("price",), best="serves the most for its price",
    ),
    "per_joule": Objective(
        PER_WATT, "Tokens/J of the draw given", "tokens/J", "makes {} tokens a joule of its cards",
        3, needs=("draw",), best="makes the most of a joule",
    ),
    "per_mm2": Objective(
        PER_MM2, "Output tokens/s a mm²", "tok/s a mm²",
        "serves {} output tokens/s a mm² of its cards", 3,
        needs=("area",), best="serves the most for its area",
    ),
}  # fmt: skip
"""By the `objective` of a sweep."""


def objective_of(given: object) -> Objective:
    """An objective by its name, or by any metric: `{metric: cost, direction: minimize}`. Raises
    ValueError."""
    if isinstance(given, Objective):
        return given
    if isinstance(given, str):
        if given not in OBJECTIVES:
            raise ValueError(f"no objective {given!r}; {nearest(given, list(OBJECTIVES))}")
        return OBJECTIVES[given]
    if not isinstance(given, Mapping):
        raise ValueError(f"expected a name, or {{metric: ..., direction: ...}}; got {given!r}")
    keys = ("metric", "direction")
    if unknown := next((key for key in given if key not in keys), None):
        raise ValueError(f"{unknown}: unknown key; {nearest(str(unknown), list(keys))}")
    metric, direction = given.get("metric", THROUGHPUT), given.get("direction", "maximize")
    if direction not in (ways := ["maximize", "minimize"]) or not isinstance(metric, str):
        raise ValueError(f"direction: expected one of {', '.join(ways)}; got {direction!r}")
    less = direction == "minimize"
    known = (each for each in OBJECTIVES.values() if (each.metric, each.less) == (metric, less))
    return next(known, Objective(metric, metric, "", f"has {{}} {metric}", less=less))


def figures_of(objective: Objective) -> list[Figure]:
    """The columns of a table, that of the objective first."""
    first = objective.figure
    if objective.is_rate or first.metric == KV_RATE:
        return [*FIGURES]
    rest = [figure for figure in FIGURES if figure.metric != first.metric]
    return [replace(first, first=True, ends=None), *rest]


def named_objective(config: Mapping[str, object]) -> Objective | None:
    """What a sweep's config names, None where it names none that is known."""
    found = OBJECTIVES.get(str(config.get("objective")))
    base, axes = config.get("base"), config.get("axes")
    second = any(isinstance(each, dict) and each.get("latency_at") for each in (base, axes))
    return found.below_capacity() if found and second else found
