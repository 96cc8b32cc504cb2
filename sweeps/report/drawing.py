"""Charts as files, and the script that draws them in a page: Vega-Lite by vl-convert, offline."""

from __future__ import annotations

import os
import tempfile
import textwrap
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from sweeps.report.vega import DARK, LIGHT, Spec, legend_columns, spec
from sweeps.sections.chart import Chart, Points, Spans

VEGA_LITE = "6.4"
_WIDTH, _WIDE = 680, 1080
"""Pixels of a chart, and of one with much along its axis."""
_PAPER = ((LIGHT, "#ffffff"), (DARK, "#16181b"))
"""Theme and paper of a picture: light, dark."""
_FONT = "DejaVu Sans, Verdana, sans-serif"
"""Wide, so that texts which are drawn in another one are no wider than was measured."""
_PADDING = {"left": 12, "right": 16, "top": 12, "bottom": 12}
"""Pixels."""
_LETTERS = 100
"""Of a line of a note under a title."""


def svg(charts: Sequence[Chart], compared: Sequence[str] = (), dark: bool = False) -> bytes:
    """Charts under one another as one SVG picture; `dark`: light text on dark paper."""
    return _converted("svg", charts, compared, dark)


def png(charts: Sequence[Chart], compared: Sequence[str] = (), dark: bool = False) -> bytes:
    """The same as PNG, two pixels a unit."""
    return _converted("png", charts, compared, dark, scale=2)


def pdf(charts: Sequence[Chart], compared: Sequence[str] = (), dark: bool = False) -> bytes:
    """The same as a page of PDF."""
    return _converted("pdf", charts, compared, dark)


FORMS: dict[str, Callable[..., bytes]] = {".svg": svg, ".png": png, ".pdf": pdf}
"""By the ending of a file's name."""


def still(charts: Sequence[Chart], compared: Sequence[str], dark: bool = False) -> Spec:
    """The specification of a picture."""
    found = [_sized(chart, compared) for chart in charts]
    theme, paper = _PAPER[dark]
    config = {**theme, "background": paper, "padding": _PADDING, "font": _FONT}
    letters = max(each["usermeta"]["letters"] for each in found)
    columns, apart = legend_columns(letters, _WIDTH), {"top": {"margin": 10}}
    legend = {"columns": columns, "columnPadding": 6, "layout": apart}
    config["legend"] = {**theme["legend"], **legend}
    if len(found) == 1:
        return {**found[0], "config": config}
    independent = {
        "scale": dict.fromkeys(("color", "x", "y", "opacity", "strokeDash"), "independent")
    }
    schema = found[0]["$schema"]
    for each in found:
        del each["$schema"]
    return {"$schema": schema, "vconcat": found, "resolve": independent, "config": config}


def _sized(chart: Chart, compared: Sequence[str]) -> Spec:
    rows = isinstance(chart, Spans) and not chart.y and not chart.led
    wide = rows or isinstance(chart, Points)
    found = spec(chart, compared) | {"width": _WIDE if wide else _WIDTH}
    lines = textwrap.wrap(chart.title, _LETTERS)
    found["title"] = {"text": lines, "subtitle": textwrap.wrap(chart.note, _LETTERS + 10)}
    return found


def _converted(
    form: str, charts: Sequence[Chart], compared: Sequence[str], dark: bool, **more: Any
) -> bytes:
    import vl_convert

    convert = getattr(vl_convert, f"vegalite_to_{form}")
    found = convert(still(charts, compared, dark), vl_version=VEGA_LITE, **more)
    return found.encode() if isinstance(found, str) else bytes(found)


def script() -> str:
    """Vega, Vega-Lite and vega-embed (`vegaEmbed`) as one script; bundled once a machine."""
    import vl_convert

    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bankwise" / "charts"
    versions = vl_convert.get_vega_version(), VEGA_LITE, vl_convert.get_vega_embed_version()
    file = base / f"vega-{'-'.join(versions)}.js"
    with suppress(OSError):
        return file.read_text(encoding="utf-8")
    text: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", VEGA_LITE)
    text = text.replace("</script", "<\\/script")
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=file.parent, suffix=".part")
        with os.fdopen(handle, "w", encoding="utf-8") as part:
            part.write(text)
        os.replace(name, file)
    return text
