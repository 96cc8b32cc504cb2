"""Verdicts on claims of papers: what the release run has against what a paper says.

`docs/release/claims.yaml` has each claim of docs/papers.md that figures of the release run can
decide. Its `paper` is a number, a range, or `{least: x}` or `{most: x}`; `of` is the value that
answers it (several: their geometric mean), over another one with `over`. What would refute it
follows: a figure of the paper holds within `margin` of it, an order exactly.

- reproduced: our whole interval lies there
- direction: it lies elsewhere, on the paper's side of `none`, where nothing would have changed
- direction, size undecided: on that side, and across an end of what would be reproduced
- undecided: across such an end, and no side is sure
- refuted here: elsewhere, and not on the paper's side
- another size: elsewhere, of a figure that has no side

A claim whose part has not run yet says so: what would refute it is written before it is known.
Where another seed says otherwise the verdict is what both bear out (`agreed`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from hwmodel.measure.student import t_quantile
from tools.figures import FigureError, Results, Value, written

FILE = "docs/release/claims.yaml"
NOT_RUN = "not run"
REPRODUCED, DIRECTION, REFUTED = "reproduced", "direction", "refuted here"
UNDECIDED, SIZE, ANOTHER = "undecided", "direction, size undecided", "another size"
SEED = 2
"""The other seed; all parts have 1."""
NOTHING = "–"
OPEN = "left open"
"""The verdicts of the seeds where they differ, and the replications that would decide it."""
MOST = 1000
"""Replications beyond which a number says nothing."""

Ends = tuple[float, float, float]
"""A mean and the ends of its interval."""


@dataclass(frozen=True)
class Claim:
    """One claim, and where our figure for it stands in the release run."""

    of: Sequence[str]
    low: float
    high: float
    exact: bool
    """Whether it is an order, which holds without a margin."""
    none: float | None
    """The figure that would say that nothing changes."""
    over: str = ""
    how: str = ""
    """As figures are written on pages."""
    margin: float | None = None
    """Its own, where the others' would say nothing."""
    replications: int = 8

    def part(self) -> str:
        """The part of the release run that answers it."""
        return self.of[0].split("/")[0]

    def parts(self) -> set[str]:
        """This, and that of what it is divided by."""
        return {each.split("/")[0] for each in (*self.of, *([self.over] if self.over else []))}

    def within(self, margin: float) -> tuple[float, float]:
        """What would be reproduced."""
        wide = 0.0 if self.exact else margin if self.margin is None else self.margin
        return self.low * (1 - wide), self.high * (1 + wide)

    def side(self, low: float | None = None, high: float | None = None) -> int:
        """On which side of `none` both ends lie, the paper's or these; 0 where on none."""
        if self.none is None:
            return 0
        low, high = self.low if low is None else low, self.high if high is None else high
        return 1 if low > self.none else -1 if high < self.none else 0

    def paper(self) -> str:
        """What the paper says, in words."""
        form = self.how.removesuffix(" alone")
        ends = [written(end, form) for end in (self.low, self.high) if 0 < end < math.inf]
        if self.low in (0, -math.inf):
            return f"at most {ends[0]}"
        if self.high == math.inf:
            return f"at least {ends[0]}"
        return " to ".join(dict.fromkeys(ends))


def read_claims(root: Path) -> tuple[float, dict[str, dict[str, Claim]]]:
    """The margin, and the claims of each paper by name."""
    described = yaml.safe_load((root / FILE).read_text(encoding="utf-8"))
    papers = {
        paper: {name: _claim(dict(each)) for name, each in claims.items()}
        for paper, claims in described["papers"].items()
    }
    return float(described["margin"]), papers


def _claim(each: dict[str, Any]) -> Claim:
    paper, of = each.pop("paper"), each.pop("of")
    exact = isinstance(paper, dict)
    if exact:
        low, high = float(paper.get("least", 0)), float(paper.get("most", math.inf))
    else:
        low, high = (float(end) for end in (paper if isinstance(paper, list) else (paper, paper)))
    each.setdefault("none", 1.0)
    return Claim([of] if isinstance(of, str) else of, low, high, exact, **each)


def ours(claim: Claim, results: Mapping[str, Value]) -> Ends | None:
    """Our figure and its interval, None where the run has not all that it takes. Raises
    FigureError."""
    names = [*claim.of, *([claim.over] if claim.over else [])]
    if any(name not in results for name in names):
        return None
    found = [_ends(name, results[name]) for name in names]
    many = len(claim.of)
    if len(found) == 1:
        return found[0]
    logs = [[math.log(end) for end in each] for each in found]
    mean = math.fsum(each[0] for each in logs[:many]) / many
    # of a mean over models, which share their requests, errors may all be of one sign
    half = math.fsum((each[2] - each[1]) / 2 for each in logs[:many]) / many
    for each in logs[many:]:
        mean, half = mean - each[0], math.hypot(half, (each[2] - each[1]) / 2)
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def _ends(name: str, value: Value) -> Ends:
    if isinstance(value, str):
        raise FigureError(f"{name}: a claim wants a number, not {value!r}")
    mean, low, high = value if isinstance(value, list) else [value] * 3
    return mean, low, high


def verdict(claim: Claim, found: Ends, margin: float) -> str:
    """What our interval says of the claim."""
    _, low, high = found
    least, most = claim.within(margin)
    if low >= least and high <= most:
        return REPRODUCED
    same = not claim.exact and claim.side() != 0 and claim.side() == claim.side(low, high)
    if least <= high and low <= most:
        return SIZE if same else UNDECIDED
    if same:
        return DIRECTION
    return REFUTED if claim.exact or claim.none is not None else ANOTHER


def agreed(one: str, other: str) -> str:
    """The verdict that both seeds bear out."""
    if one == other:
        return one
    return SIZE if {one, other} <= {REPRODUCED, DIRECTION, SIZE} else UNDECIDED


def settling(claim: Claim, found: Ends, margin: float) -> str:
    """How many replications would settle the claim, if the mean stayed where it is."""
    mean, low, high = found
    ends = [end for end in claim.within(margin) if 0 < end < math.inf]
    apart = min(abs(math.log(mean / end)) for end in ends)
    count = claim.replications
    spread = math.log(high / low) / 2 * math.sqrt(count) / t_quantile(count - 1)
    for wanted in range(count + 1, MOST + 1):
        if t_quantile(wanted - 1) * spread <= apart * math.sqrt(wanted):
            return f"{wanted:,}"
    return f"over {MOST:,}"


def rows(root: Path, first: Results, second: Results) -> Iterator[tuple[str, str, dict[str, str]]]:
    """The paper, the name and the verdict of each claim, with what each seed says where they
    differ. Raises FigureError."""
    margin, papers = read_claims(root)
    ran = {key.split("/")[0] for key in first}
    for paper, claims in papers.items():
        for name, claim in claims.items():
            found, other = ours(claim, first), ours(claim, second)
            if not claim.parts() <= ran:
                without = dict.fromkeys(("here", "another seed", "verdict"), NOT_RUN)
                yield paper, name, {"the paper": claim.paper(), **without, OPEN: NOTHING}
                continue
            if found is None:
                raise FigureError(f"{FILE}: {paper}, {name}: not in the release run")
            seeds = [each for each in (found, other) if each]
            said = [verdict(claim, each, margin) for each in seeds]
            wide = [each for each, word in zip(seeds, said, strict=True) if "undecided" in word]
            left = [f"seeds: {'; '.join(said)}"] if len({*said}) > 1 else []
            left += [f"{settling(claim, wide[0], margin)} replications"] if wide else []
            row = {
                "the paper": claim.paper(),
                "here": _written(found, claim.how),
                "another seed": _written(other, claim.how) if other else NOT_RUN,
                "verdict": agreed(said[0], said[-1]),
                OPEN: "; ".join(left) or NOTHING,
            }
            yield paper, name, row


def _written(found: Ends, how: str) -> str:
    """Our figure, alone where nothing is drawn."""
    return written(found[0] if found[1] == found[2] else list(found), how)


def verdicts(root: Path, first: Results, second: Results) -> dict[str, Any]:
    """The verdicts on each claim by paper, and how many turn under another seed."""
    tables: dict[str, Any] = {}
    there, turned = 0, []
    for paper, name, row in rows(root, first, second):
        tables.setdefault(paper, {})[name] = row
        there += row["another seed"] != NOT_RUN
        turned += [f"{paper}: {name}"] * row[OPEN].startswith("seeds: ")
    count = sum(len(each) for each in tables.values())
    return {**tables, "counts": {
        "claims": count, "under two seeds": there, "turned": len(turned),
    }, "turned": "; ".join(turned) or "none"}  # fmt: skip
