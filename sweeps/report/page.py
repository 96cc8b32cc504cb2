"""Sections as one HTML page that needs no network, and as part of a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import groupby
from typing import TYPE_CHECKING, Any

from sweeps.report.chart import Chart, Heat, Lines, Patches, Regions, file_name
from sweeps.report.drawing import script, svg
from sweeps.report.palette import colours
from sweeps.report.section import Block, Grid, Listing, Say, Section
from sweeps.report.vega import DARK, LIGHT, spec

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup


_SUBJECT = 60
"""Letters of a verdict's subject at most."""


def page(sections: list[Section]) -> str:
    """One self-contained page."""
    drawn = any(is_chart(block) for section in sections for block in section.walk())
    found: str = (
        _templates(_live)
        .get_template("page.html")
        .render(
            title=", ".join(section.title for section in sections),
            sections=sections,
            themes={"light": LIGHT, "dark": DARK},
            script=script() if drawn else "",
        )
    )
    return found


def fragment(sections: list[Section]) -> str:
    """What a notebook shows: the same in light colours, its style kept to itself, its charts as
    pictures."""
    found: str = _templates(_still).get_template("fragment.html").render(sections=sections)
    return found


def is_chart(block: Block) -> bool:
    """Whether a block is drawn."""
    return not isinstance(block, (Say, Grid, Listing, Section))


def _live(chart: Chart, titles: Sequence[str], compared: Sequence[str]) -> Markup:
    """A chart that the page's script draws."""
    from markupsafe import Markup

    named = isinstance(chart, Lines) and any(one.names for one in chart.series)
    whole = named or isinstance(chart, (Heat, Regions, Patches))
    template = _templates(_live).get_template("chart.html")
    found = template.render(
        chart=chart, file=file_name(*titles, chart.title), whole=whole,
        spec=spec(chart, compared, live=True),
    )  # fmt: skip
    return Markup(found)


def _still(chart: Chart, titles: Sequence[str], compared: Sequence[str]) -> Markup:
    """A chart as a picture."""
    from markupsafe import Markup

    return Markup("<figure>{}</figure>").format(Markup(svg([chart], compared).decode()))


@cache
def _templates(draw: Any) -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    found = Environment(
        loader=PackageLoader("sweeps.report"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    kinds = {"say": Say, "grid": Grid, "listing": Listing, "section": Section}
    for name, kind in kinds.items():
        found.tests[name] = _is(kind)
    found.filters |= {"groups": _groups, "prose": _prose, "colours": colours}
    found.globals["draw"] = draw
    found.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "ensure_ascii": False}
    return found


def _is(kind: type) -> Any:
    return lambda value: isinstance(value, kind)


def _groups(blocks: Sequence[Block]) -> list[tuple[bool, list[Block]]]:
    """Blocks in order, charts that follow one another together."""
    return [(drawn, list(several)) for drawn, several in groupby(blocks, is_chart)]


def _prose(say: Say) -> Markup:
    """A verdict's subject stands out; a number keeps its percent sign at the end of a line."""
    from markupsafe import Markup

    title, colon, rest = say.text.partition(": ")
    if say.kind not in ("lead", "verdict") or not colon or "(" in title or len(title) > _SUBJECT:
        title, rest = "", say.text
    head = Markup("<b>{}</b>: ").format(title) if title else Markup("")
    return head + Markup("{}").format(rest.replace(" %", "\N{NO-BREAK SPACE}%"))
