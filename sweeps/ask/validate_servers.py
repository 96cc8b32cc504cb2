"""Published whole servers beside our serving, as a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from hwmodel.description.description import DescriptionError, nearest
from sweeps.ask import published_servers
from sweeps.ask.published_servers import (
    MOST,
    Laws,
    PublishedRow,
    ServersBeside,
    flops_share,
    summary,
)
from sweeps.ask.question import Question, Several, Text, Typed
from sweeps.run.progress import Progress
from sweeps.sections.section import Grid, Say, Section

COLUMNS = ["server", "tokens", "at once", "TTFT ms", "here", "TPOT ms", "here", "inside"]


@dataclass(frozen=True)
class ServersFindings:
    """Servers beside our serving, and rows that no card can do."""

    beside: list[ServersBeside]
    out: list[PublishedRow]

    def record(self) -> dict[str, Any]:
        """How far the times are, and each server."""
        servers = [
            {**one.row._asdict(), "simulated_ttft_ms": one.ttft_ms,
             "simulated_tpot_ms": one.tpot_ms, "inside": one.inside}
            for one in self.beside
        ]  # fmt: skip
        left = [{**row._asdict(), "flops_share": flops_share(row)} for row in self.out]
        return {**summary(self.beside), "servers": servers, "not_possible": left}


class ServersQuestion(Question):
    """Compare our serving with published times of whole servers."""

    sets: ClassVar[bool] = False

    model: Annotated[Text, Typed("MODEL", argument=True)] = ""
    """A word that the names of their models contain (default: all)."""
    without: Annotated[tuple[Text, ...], Several, Typed("LAW")] = ()
    """Laws of first tokens to leave out: ahead, batch_wait, client, token_limits, or all."""

    def answer(self) -> ServersFindings:
        rows = published_servers.possible(self.model)
        every = published_servers.ROWS
        if not rows:
            known = ", ".join(dict.fromkeys(row.model for row in every))
            raise DescriptionError(
                f"no published server of it; expected part of {known}", self.model
            )
        laws = self._laws()
        shown = Progress().through("servers")(list(rows), len(rows))
        out = [row for row in every if self.model in row.model and row not in rows]
        return ServersFindings(list(published_servers.each(shown, laws)), out)

    def _laws(self) -> Laws:
        """Those that are not left out."""
        out = Laws._fields if "all" in self.without else self.without
        for name in out:
            if name not in Laws._fields:
                raise DescriptionError(nearest(name, [*Laws._fields, "all"]), "--without")
        return Laws(**{name: name not in out for name in Laws._fields})

    def section(self, findings: ServersFindings) -> Section:
        return sheet(findings.beside, findings.out, summary(findings.beside))


def sheet(
    beside: Sequence[ServersBeside], out: Sequence[PublishedRow], far: Mapping[str, Any]
) -> Section:
    """A row for each, what is left out and why, and how far the times are."""
    rows = [
        [_name(one.row), _tokens(one.row), str(one.row.at_once),
         f"{one.row.ttft_ms:,.0f}", f"{one.off[0]:+.0%}",
         f"{one.row.tpot_ms:,.1f}", f"{one.off[1]:+.0%}", "yes" if one.inside else "no"]
        for one in beside
    ]  # fmt: skip
    text = (
        f"{len(beside)} servers: TPOT is {far['TPOT']['median']:.1%} off in the median, nine in"
        f" ten within {far['TPOT']['nine in ten']:.0%}, and {far['TPOT inside its interval']:.0%}"
        f" lie in the interval of their law; TTFT is {far['TTFT']['median']:.0%} off in the"
        f" median, nine in ten within {far['TTFT']['nine in ten']:.0%}."
    )
    left = [
        f"{_name(row)}, {_tokens(row)}, {row.at_once} at once ({flops_share(row):.2f})"
        for row in out
    ]
    if left:
        text += f" Left out, as they need more than {MOST:g} of the peak FLOPs: {'; '.join(left)}."
    return Section("Published servers", [Grid("", COLUMNS, rows), Say(text)])


def _name(row: PublishedRow) -> str:
    return f"{row.model} {row.precision}, {row.device}, {row.server}"


def _tokens(row: PublishedRow) -> str:
    return f"{row.prompt:,} + {row.output:,}"
