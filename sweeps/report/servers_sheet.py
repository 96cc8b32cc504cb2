"""Published whole servers beside our serving, as a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sweeps.ask.published_servers import MOST, PublishedRow, ServersBeside, flops_share
from sweeps.sections.section import Grid, Say, Section

COLUMNS = ["server", "tokens", "at once", "TTFT ms", "here", "TPOT ms", "here", "inside"]


def sheet(
    found: Sequence[ServersBeside], out: Sequence[PublishedRow], told: Mapping[str, Any]
) -> Section:
    """A row for each, what is left out and why, and how far the times are."""
    rows = [
        [_name(one.row), _tokens(one.row), str(one.row.at_once),
         f"{one.row.ttft_ms:,.0f}", f"{one.off[0]:+.0%}",
         f"{one.row.tpot_ms:,.1f}", f"{one.off[1]:+.0%}", "yes" if one.inside else "no"]
        for one in found
    ]  # fmt: skip
    text = (
        f"{len(found)} servers: TPOT is {told['TPOT']['median']:.1%} off in the median, nine in"
        f" ten within {told['TPOT']['nine in ten']:.0%}, and {told['TPOT inside its interval']:.0%}"
        f" lie in the interval of their law; TTFT is {told['TTFT']['median']:.0%} off in the"
        f" median, nine in ten within {told['TTFT']['nine in ten']:.0%}."
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
