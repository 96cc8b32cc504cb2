"""Sections as one HTML page that needs no network, and as part of a notebook."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Sequence
from functools import cache, partial
from itertools import groupby
from typing import TYPE_CHECKING, Any

from sweeps.report.drawing import script, svg
from sweeps.report.palette import colours
from sweeps.report.vega import DARK, LIGHT, Spec, spec
from sweeps.sections.chart import Chart, Lines, Places, Spans, file_name
from sweeps.sections.section import Block, Grid, Listing, Say, Section, fitted, is_chart

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup


_SUBJECT = 60
"""Letters of a verdict's subject at most."""


def page(sections: list[Section]) -> str:
    """One self-contained page."""
    specs: list[Spec] = []
    drawn = any(is_chart(block) for section in sections for block in section.walk())
    return rendered(
        "page.html",
        title=", ".join(section.title for section in sections),
        sections=sections,
        draw=partial(_live, specs),
        themes={"light": LIGHT, "dark": DARK},
        packed=lambda: _packed(specs),
        script=script() if drawn else "",
    )


def fragment(sections: list[Section]) -> str:
    """What a notebook shows: the same in light colours, its style kept to itself, its charts as
    pictures."""
    return rendered("fragment.html", sections=sections, draw=_still)


def rendered(template: str, **names: Any) -> str:
    """A template of this room, filled; what is no markup is escaped."""
    return _templates().get_template(template).render(names)


def _packed(specs: list[Spec]) -> str:
    """Specifications, many of which are nearly the same, as gzip in Base64."""
    text = json.dumps(specs, separators=(",", ":"), ensure_ascii=False)
    return base64.b64encode(gzip.compress(text.encode(), 6, mtime=0)).decode()


def _live(
    specs: list[Spec], chart: Chart, titles: Sequence[str], compared: Sequence[str]
) -> Markup:
    """A chart that the page's script draws, from what is added to `specs`."""
    from markupsafe import Markup

    named = isinstance(chart, Lines) and any(one.names for one in chart.series)
    whole = named or isinstance(chart, (Spans, Places))
    specs.append(spec(chart, compared, live=True))
    file = file_name(*titles, chart.title)
    return Markup(rendered("chart.html", chart=chart, file=file, whole=whole))


def _still(chart: Chart, titles: Sequence[str], compared: Sequence[str]) -> Markup:
    """A chart as a picture."""
    from markupsafe import Markup

    return Markup("<figure>{}</figure>").format(Markup(svg([chart], compared).decode()))


@cache
def _templates() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    found = Environment(
        loader=PackageLoader("sweeps.report"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    kinds = {"say": Say, "grid": Grid, "listing": Listing, "section": Section}
    found.tests |= {name: _is(kind) for name, kind in kinds.items()}
    found.policies["json.dumps_kwargs"] = {"sort_keys": False}
    found.filters |= {"groups": _groups, "prose": _prose, "colours": colours}
    return found


def _is(kind: type) -> Any:
    return lambda value: isinstance(value, kind)


def _groups(blocks: Sequence[Block]) -> list[tuple[bool, list[Block]]]:
    """Blocks in order, charts that follow one another together."""
    return [(drawn, list(several)) for drawn, several in groupby(fitted(blocks), is_chart)]


def _prose(say: Say) -> Markup:
    """A verdict's subject stands out; a number keeps its percent sign at the end of a line."""
    from markupsafe import Markup

    title, colon, rest = say.text.partition(": ")
    if say.kind not in ("lead", "verdict") or not colon or "(" in title or len(title) > _SUBJECT:
        title, rest = "", say.text
    head = Markup("<b>{}</b>: ").format(title) if title else Markup("")
    return head + Markup("{}").format(rest.replace(" %", "\N{NO-BREAK SPACE}%"))
