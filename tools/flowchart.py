"""A flowchart of Mermaid's notation as SVG, so that the site needs no script from elsewhere.

What is read is what `docs/architecture.md` has: `a --> b`, a line each, and `subgraph NAME` to
`end`. A subgraph is a band, in the order in which they stand; in it a node stands to the right of
all that lead to it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

WIDE, HIGH, GAP_X, GAP_Y, TITLE = 84, 26, 26, 14, 26
"""Of a node, between nodes, and of a band's title, in pixels."""


class Flowchart(NamedTuple):
    """Bands of nodes by name, and the arrows between nodes."""

    bands: dict[str, list[str]]
    arrows: list[tuple[str, str]]


class NodePlace(NamedTuple):
    """Where a node's upper left corner is, and in which band."""

    x: int
    y: int
    band: str


def read(text: str) -> Flowchart:
    """The flowchart that a block of Mermaid describes; nodes outside of subgraphs are band ''."""
    bands: dict[str, list[str]] = {"": []}
    arrows = [(a, b) for a, b in re.findall(r"^ *([\w.]+) --> ([\w.]+)$", text, re.MULTILINE)]
    band, seen = "", set[str]()
    inside = {
        name.strip(): set(re.findall(r"[\w.]+", lines))
        for name, lines in re.findall(r"subgraph (\S+)\n(.*?)\n *end", text, re.DOTALL)
    }
    for node in (node for arrow in arrows for node in arrow):
        if node not in seen:
            band = next((name for name, nodes in inside.items() if node in nodes), "")
            bands.setdefault(band, []).append(node)
            seen.add(node)
    return Flowchart({name: bands[name] for name in ("", *inside) if bands.get(name)}, arrows)


def column(node: str, chart: Flowchart, band: list[str]) -> int:
    """How many nodes of its band stand before it on the longest way to it."""
    before = [a for a, b in chart.arrows if b == node and a in band]
    return max((1 + column(each, chart, band) for each in before), default=0)


def places(chart: Flowchart) -> dict[str, NodePlace]:
    """Where each node stands."""
    found: dict[str, NodePlace] = {}
    top = 0
    for name, band in chart.bands.items():
        filled: dict[int, int] = {}
        for node in band:
            at = column(node, chart, band)
            row = filled[at] = filled.get(at, -1) + 1
            y = top + (TITLE if name else GAP_Y) + row * (HIGH + GAP_Y)
            found[node] = NodePlace(GAP_X + at * (WIDE + GAP_X), y, name)
        top = max(place.y for place in found.values()) + HIGH + 2 * GAP_Y
    return found


def arrow(start: NodePlace, end: NodePlace) -> str:
    """The path of an arrow: to the right in a band, above what stands between, downwards between
    bands."""
    if start.band == end.band and end.x - start.x > WIDE + GAP_X:
        x1, y1, x2, y2 = start.x + WIDE * 2 // 3, start.y, end.x + WIDE // 3, end.y
        bent = f"{x1 + GAP_X},{y1 - TITLE} {x2 - GAP_X},{y2 - TITLE}"
    elif start.band == end.band:
        x1, y1, x2, y2 = start.x + WIDE, start.y + HIGH // 2, end.x, end.y + HIGH // 2
        bent = f"{(x1 + x2) // 2},{y1} {(x1 + x2) // 2},{y2}"
    else:
        x1, y1, x2, y2 = start.x + WIDE // 2, start.y + HIGH, end.x + WIDE // 2, end.y
        bent = f"{x1},{(y1 + y2) // 2} {x2},{(y1 + y2) // 2}"
    return f'<path d="M{x1},{y1} C{bent} {x2},{y2}" marker-end="url(#tip)"/>'


def svg(text: str) -> str:
    """The drawing, on one line, in the colours of the page."""
    chart = read(text)
    found = places(chart)
    width = max(place.x for place in found.values()) + WIDE + GAP_X
    height = max(place.y for place in found.values()) + HIGH + GAP_Y
    parts = [
        f'<svg viewBox="0 0 {width} {height}" style="min-width: {width * 3 // 4}px" role="img"'
        ' font-size="12" fill="none" stroke="currentColor">'
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7"'
        ' markerHeight="7" orient="auto"><path d="M0,0 8,4 0,8z" fill="currentColor"/></marker>'
        "</defs>"
    ]
    for name, band in chart.bands.items():
        if name:
            ys = [found[node].y for node in band]
            y, high = min(ys) - TITLE, max(ys) - min(ys) + HIGH + TITLE + GAP_Y // 2
            parts.append(
                f'<rect x="1" y="{y}" width="{width - 2}" height="{high}" stroke-opacity="0.3"/>'
                f'<text x="8" y="{y + 15}" fill="currentColor" stroke="none">{name}</text>'
            )
    parts += [f'<g opacity="0.6">{arrow(found[a], found[b])}</g>' for a, b in chart.arrows]
    for node, place in found.items():
        label = node.removeprefix(f"{place.band}.")
        parts.append(
            f'<rect x="{place.x}" y="{place.y}" width="{WIDE}" height="{HIGH}" rx="3"'
            ' fill="var(--md-default-bg-color, white)"/>'
            f'<text x="{place.x + WIDE // 2}" y="{place.y + 17}" text-anchor="middle"'
            f' fill="currentColor" stroke="none">{label}</text>'
        )
    return f'<div style="overflow-x: auto">{"".join(parts)}</svg></div>'
