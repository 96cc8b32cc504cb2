"""Charts as HTML and SVG.

The picture is stretched to the width there is, its text is HTML beside it, in shares of the same
width: letters keep their size on a phone. Series differ in colour and in dashes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from itertools import accumulate
from urllib.parse import quote

from sweeps.analyse.statistics import Interval
from sweeps.report import heat, labels
from sweeps.report.chart import (
    Bar,
    Bars,
    Chart,
    Curves,
    Heat,
    Lines,
    Patches,
    Regions,
    Series,
    Stacks,
    Tornado,
    to_csv,
)
from sweeps.report.scale import Scale, number, scale

COLOURS = 8
"""Series colours `--s0` to `--s7`, in dark and light told apart by the colour-blind."""
STYLE = """
figure { margin: 1rem 0 1.2rem; min-width: 0; break-inside: avoid }
figcaption { font-size: .9rem; font-weight: 600; margin-bottom: .2rem }
.csv { font-weight: 400; font-size: .8rem; margin-left: .5em; color: var(--dim) }
.bars { display: grid; grid-template-columns: fit-content(38%) 1fr auto; gap: .2rem .6rem;
        align-items: center; font-variant-numeric: tabular-nums; font-size: .9rem }
.bars > :nth-child(3n) { text-align: right }
.bars svg { width: 100%; height: 18px; display: block; overflow: visible }
.bars svg text { fill: var(--back); font: 11px system-ui, sans-serif; text-anchor: middle }
.bars .control { color: var(--dim) }
.bar { fill: var(--s0) } .bar.control { fill: var(--control) }
.bar.loss { fill: var(--s1) } .bar.control.loss { fill: var(--control) }
.bars svg .tick { fill: var(--dim) }
.zero { stroke: var(--dim); stroke-width: 1 }
.whisker { stroke: var(--ink); stroke-width: 1.2 }
.part { stroke: var(--back); stroke-width: 1 }
.keys { font-size: .85rem; line-height: 1.5; margin-bottom: .2rem }
.key { display: inline-block; margin-right: 1rem }
.key svg { width: 1.6em; height: .7em; margin-right: .35em; vertical-align: -.02em }
.ylabel, .xlabel { font-size: .8rem; color: var(--dim) }
.ylabel { margin-bottom: .5rem } .xlabel { text-align: right; margin: 1.35rem 1.2rem 0 0 }
.area { position: relative; height: 13rem; margin: 0 1.2rem 0 3.4rem }
.area > svg { width: 100%; height: 100%; display: block; overflow: visible }
.area span { position: absolute; font-size: .75rem; line-height: 1; color: var(--dim);
             white-space: nowrap; font-variant-numeric: tabular-nums }
.y { right: calc(100% + .4rem); transform: translateY(50%) }
.x { top: calc(100% + .35rem); transform: translateX(-50%) }
.area path, .area line { vector-effect: non-scaling-stroke }
.grid { stroke: var(--line); stroke-width: 1 }
.curve { fill: none; stroke-width: 2; stroke-linejoin: round }
.dots { fill: none; stroke-width: 7; stroke-linecap: round; opacity: .8 }
.ends { fill: none; stroke-width: 1 } .band { opacity: .22; stroke: none }
.tall .area { height: 20rem } .whole { grid-column: 1 / -1 }
"""
STYLE += heat.STYLE + labels.STYLE
_DASHES = ("", "7 3", "2 3", "9 3 2 3", "12 4", "4 2", "1 3", "9 2 2 2 2 2")
SHADES = ((0.05, 0.3, "under 5 %"), (0.2, 0.55, "to 20 %"), (0.6, 0.8, "to 60 %"),
          (math.inf, 1.0, "more"))  # fmt: skip
"""Of a lead: below which share, how opaque, and in words."""
_WRITTEN = 0.08
"""A part of a bar has its number from this share of the width on."""
SIDE = 1000
"""The picture's own coordinates go from 0 to this, in whole numbers, in both directions."""


def figure(chart: Chart, file: str) -> str:
    """A chart with its caption, its key, its note, and its data as `file`.csv."""
    match chart:
        case Bars():
            body = _bars(chart)
        case Tornado():
            body = _tornado(chart)
        case Stacks():
            body = _stacks(chart)
        case Lines():
            body = _lines(chart)
        case Curves():
            body = _curves(chart)
        case Patches():
            body = _patches(chart)
        case Regions():
            body = _regions(chart)
        case Heat():
            box = f'viewBox="0 0 {heat.WIDTH} {heat.height(chart)}"'
            body = f'<svg {box} role="img">{heat.drawn(chart)}</svg>'
    link = (
        f'<a class="csv" download="{escape(file)}.csv" '
        f'href="data:text/csv;charset=utf-8,{quote(to_csv(chart), safe=",:;/+()")}">CSV</a>'
    )
    note = f'<p class="dim">{escape(chart.note)}</p>' if chart.note else ""
    named = isinstance(chart, Lines) and any(one.names for one in chart.series)
    tall = ' class="tall"' if named or isinstance(chart, Patches) else ""
    tall = ' class="whole"' if isinstance(chart, Heat) else tall
    return (
        f"<figure{tall}><figcaption>{escape(chart.title)}{link}</figcaption>{body}{note}</figure>"
    )


def _bars(chart: Bars) -> str:
    ends = [
        bar.value.high if math.isfinite(bar.value.high) else bar.value.mean for bar in chart.bars
    ]
    top = max(ends, default=0.0) or 1.0
    lines = []
    for bar in chart.bars:
        digits = 0 if abs(bar.value.mean) >= 1000 else chart.digits
        text = f"{bar.value.mean:,.{digits}f}"
        lines.append(_line(bar.name, text, text, _bar(bar, top), bar.dim))
    return f'<div class="bars">{"".join(lines)}</div>'


def _line(name: str, text: str, label: str, drawn: str, dim: bool = False) -> str:
    kind = ' class="control"' if dim else ""
    label = escape(f"{name}: {label}")
    return (
        f'<span{kind}>{_name(name)}</span><svg role="img" aria-label="{label}">{drawn}</svg>'
        f"<span{kind}>{text}</span>"
    )


def _tornado(chart: Tornado) -> str:
    lines = (_line(bar.name, text, text, drawn, bar.dim) for bar, text, drawn in swings(chart))
    return f'<div class="bars">{"".join(lines)}</div>'


def swings(chart: Tornado) -> Iterator[tuple[Bar, str, str]]:
    """Each bar with its value as text and its drawing, as wide as what it stands in and 18 px high:
    gains to the right of a line and losses to its left, one scale for all."""
    steps = [math.log1p(bar.value.mean) for bar in chart.bars[:-1]] if chart.waterfall else []
    begins = [*accumulate(steps, initial=0.0)][:-1] + [0.0] * (len(chart.bars) - len(steps))
    pairs = list(zip(chart.bars, begins, strict=True))
    ends = [begin + end for bar, begin in pairs for end in (0.0, *_ends_of(bar.value))]
    low, high = min([0.0, *ends]), max([0.0, *ends])
    span = (high - low) or 1.0

    def place(log: float) -> float:
        return 100 * (log - low) / span

    for bar, begin in pairs:
        digits = 0 if abs(bar.value.mean) >= 0.1 else 1
        text = f"{round(100 * bar.value.mean, digits) + 0.0:+,.{digits}f} %"
        yield bar, text, _swing(bar, begin, place)


def _ends_of(found: Interval) -> list[float]:
    """Where a relative change and its interval lie, in logarithms; what is infinite is left out."""
    ends = (found.mean, found.low, found.high)
    return [math.log1p(end) for end in ends if math.isfinite(end) and end > -1]


def _swing(bar: Bar, begin: float, place: Callable[[float], float]) -> str:
    mean, *ends = (place(begin + end) for end in _ends_of(bar.value))
    start, zero = place(begin), place(0.0)
    kind = "bar" + " control" * bar.dim + " loss" * (mean < start)
    drawn = (
        f'<rect class="{kind}" y="2" height="14" x="{min(mean, start):.2f}%" '
        f'width="{abs(mean - start):.2f}%"/>'
        f'<line class="zero" x1="{zero:.2f}%" x2="{zero:.2f}%" y1="-2" y2="20"/>'
    )
    return drawn + (_between(*(f"{end:.2f}%" for end in ends)) if len(ends) == 2 else "")


def _name(text: str) -> str:
    """A name that breaks at its dots, where it must."""
    return escape(text).replace(".", ".<wbr>")


def _bar(bar: Bar, top: float) -> str:
    kind = "bar control" if bar.dim else "bar"
    width = 100 * max(bar.value.mean, 0.0) / top
    drawn = f'<rect class="{kind}" y="2" height="14" width="{width:.2f}%"/>'
    ends = (bar.value.low, bar.value.high)
    if not math.isfinite(bar.value.half) or bar.value.half == 0:
        return drawn
    return drawn + _between(*(f"{100 * max(value, 0) / top:.2f}%" for value in ends))


def _between(low: str, high: str) -> str:
    """A whisker from one place to another."""
    lines = [(low, high, 9, 9), (low, low, 5, 13), (high, high, 5, 13)]
    return "".join(
        f'<line class="whisker" x1="{a}" x2="{b}" y1="{c}" y2="{d}"/>' for a, b, c, d in lines
    )


def _stacks(chart: Stacks) -> str:
    totals = {name: math.fsum(values) for name, values in chart.stacks.items()}
    top = max(totals.values(), default=0.0) or 1.0
    used = [i for i in range(len(chart.parts)) if any(v[i] > 0 for v in chart.stacks.values())]
    lines = []
    for name, values in chart.stacks.items():
        text = "" if chart.share else f"{totals[name]:,.{chart.digits}f}"
        whole = (totals[name] or 1.0) if chart.share else top
        label = ", ".join(f"{chart.parts[i]} {values[i] / whole:.1%}" for i in used)
        lines.append(_line(name, text, label, _stack(chart, values, whole)))
    keys = "".join(
        _key(chart.parts[i], f'<rect width="100%" height="100%" {_fill(i)}/>') for i in used
    )
    return f'<div class="keys">{keys}</div><div class="bars">{"".join(lines)}</div>'


def _stack(chart: Stacks, values: Sequence[float], whole: float) -> str:
    drawn, start = [], 0.0
    for i, (name, value) in enumerate(zip(chart.parts, values, strict=True)):
        share = value / whole
        if share > 0:
            box = f'x="{100 * start:.2f}%" width="{100 * share:.2f}%" y="1" height="16"'
            told = f"{share:.1%}" if chart.share else f"{value:,.{chart.digits}f}"
            title = f"<title>{escape(name)} {told}</title>"
            drawn.append(f'<rect class="part" {box} {_fill(i)}>{title}</rect>')
        if share >= _WRITTEN:
            text = f"{100 * share:.0f}" if chart.share else told
            drawn.append(f'<text x="{100 * (start + share / 2):.2f}%" y="13">{text}</text>')
        start += share
    return "".join(drawn)


def _lines(chart: Lines) -> str:
    x = scale(chart.x, (value for one in chart.series for value in one.x))
    heights = [v for one in chart.series for v in (*one.y, *one.low, *one.high)]
    y = scale(chart.y, heights)
    drawn = traces(chart, x, y)
    points = chart.form == "points"
    keys = [(one.name, i, points and not one.steps, one.band) for i, one in enumerate(chart.series)]
    words = _names(chart, x, y)
    return _keys(keys) + _area(chart.y.label, chart.x.label, x, y, drawn, words=words)


def _names(chart: Lines, x: Scale, y: Scale) -> str:
    """The names of a chart's points, beside them."""
    named = [(x.share(a), y.share(b), name) for a, b, name in chart.labels()]
    points = [
        (a, b) for one in chart.series if one.names for a, b in zip(one.x, one.y, strict=True)
    ]
    sides = labels.sides(named, [(x.share(a), y.share(b)) for a, b in points])
    return "".join(
        f'<span class="{side}" style="left:{100 * a:.1f}%;bottom:{100 * b:.1f}%">'
        f"{escape(name)}</span>"
        for side, (a, b, name) in zip(sides, named, strict=True)
    )


def traces(chart: Lines, x: Scale, y: Scale) -> str:
    """The series of a chart over a square whose sides are `SIDE` long."""
    return "".join(_one(chart, one, i, x, y) for i, one in enumerate(chart.series))


def _one(chart: Lines, one: Series, colour: int, x: Scale, y: Scale) -> str:
    across = [x.share(value) for value in one.x]
    drawn = ""
    if len(one.low):
        low = [y.share(value) for value in one.low]
        high = [y.share(value) for value in one.high]
        drawn = _ends(across, low, high, colour) if chart.form == "points" else _band(
            across, low, high, colour
        )  # fmt: skip
    if one.band:
        return drawn
    up = [y.share(value) for value in one.y]
    title = f"<title>{escape(one.name)}</title>"
    stairs = one.steps or chart.form == "steps"
    if chart.form == "points" and not stairs:
        path = "".join(f"M{_point(a, b)}h0" for a, b in zip(across, up, strict=True))
        return f'{drawn}<path class="dots" {stroke(colour, False)} d="{path}">{title}</path>'
    path = _path(*_stairs(across, up) if stairs else (across, up))
    dots = f'<path class="dots" {stroke(colour, False)} d="M{path}h0"/>' if len(up) == 1 else ""
    return f'{drawn}<path class="curve" {stroke(colour)} d="M{path}">{title}</path>{dots}'


def _curves(chart: Curves) -> str:
    x = scale(chart.x, (value for values in chart.values.values() for value in values))
    y = Scale(0.0, 100.0, False, [(v, number(v)) for v in (0, 25, 50, 75, 100)])
    drawn = []
    for i, (name, values) in enumerate(chart.values.items()):
        path = _path([x.share(value) for value in values], chart.shares)
        drawn.append(
            f'<path class="curve" {stroke(i)} d="M{path}"><title>{escape(name)}</title></path>'
        )
    keys = [(name, i, False, False) for i, name in enumerate(chart.values)]
    return _keys(keys) + _area("share of requests, %", chart.x.label, x, y, "".join(drawn))


def _patches(chart: Patches) -> str:
    x = scale(chart.x, (v for one in chart.patches for v in (one[0], one[0] + one[1])))
    y = scale(chart.y, (v for one in chart.patches for v in (one[2], one[2] + one[3])))
    paths: dict[int, list[str]] = {}
    for left, width, low, height, whose in chart.patches:
        a, b = x.share(left), x.share(left + width)
        c, d = y.share(low), y.share(low + height)
        box = f"M{_point(a, d)}H{_round(b)}V{_round(1 - c)}H{_round(a)}z"
        paths.setdefault(whose % COLOURS, []).append(box)
    drawn = "".join(
        f'<path {_fill(i)} d="{"".join(boxes)}"/>' for i, boxes in sorted(paths.items())
    )
    return _area(chart.y.label, chart.x.label, x, y, drawn, grid=False)


def _regions(chart: Regions) -> str:
    keys = [_key(text, shaded(0, 100, i, shade)) for text, i, shade in shade_keys(chart)]
    lines = (_line(name, text, text, drawn) for name, text, drawn in stretches(chart))
    return f'<div class="keys">{"".join(keys)}</div><div class="bars">{"".join(lines)}</div>'


def shade_keys(chart: Regions) -> Iterator[tuple[str, int, float]]:
    """What each colour and shade is: (words, owner, opacity)."""
    used = {one.owner for regions in chart.cases.values() for one in regions}
    for i in sorted(used):
        for k, (_, shade, words) in enumerate(SHADES):
            yield f"{chart.owners[i]} leads by {words}" if k == 0 else words, i, shade


def stretches(chart: Regions) -> Iterator[tuple[str, str, str]]:
    """(name, text, drawing) of each case, as wide as what it stands in and 18 px high, then of the
    axis: an owner's colour where it leads, a line with whiskers at a tie."""
    every = [one for regions in chart.cases.values() for one in regions]
    if not every:
        return
    low, high = math.log(min(one.low for one in every)), math.log(max(one.high for one in every))

    def place(value: float) -> float:
        return 100 * min(max((math.log(value) - low) / (high - low), 0.0), 1.0)

    for name, regions in chart.cases.items():
        drawn = "".join(
            shaded(place(one.low), place(one.high), one.owner,
                    next(shade for most, shade, _ in SHADES if one.lead < most))
            for one in regions
        )  # fmt: skip
        if (tie := chart.ties.get(name)) is not None:
            at = f"{place(tie.mean):.2f}%"
            drawn += f'<line class="whisker" x1="{at}" x2="{at}" y1="-2" y2="20"/>'
            drawn += _between(*(f"{place(end):.2f}%" for end in (tie.low, tie.high)))
        yield name, "" if tie is None else f"{tie.mean:.2f}", drawn
    steps = [digit * 10.0**power for power in range(-6, 7) for digit in (1, 2, 5)]
    ticks = [v for v in steps if low - 1e-9 <= math.log(v) <= high + 1e-9]
    ends = {0: "start", len(ticks) - 1: "end"}
    texts = (
        f'<text class="tick" x="{place(v):.2f}%" y="12" '
        f'style="text-anchor:{ends.get(k, "middle")}">{number(v)}</text>'
        for k, v in enumerate(ticks)
    )
    yield chart.x, "tie", "".join(texts)


def shaded(low: float, high: float, owner: int, shade: float) -> str:
    """A box between two shares of the width, in per cent."""
    box = f'x="{low:.2f}%" width="{high - low:.2f}%" y="0" height="100%"'
    return f'<rect {box} {_fill(owner)} fill-opacity="{shade:g}" shape-rendering="crispEdges"/>'


def _area(
    up: str, across: str, x: Scale, y: Scale, drawn: str, grid: bool = True, words: str = ""
) -> str:
    """The axes around what is drawn."""
    lines, texts = [], []
    for value, text in y.ticks:
        share = y.share(value)
        at = _round(1 - share)
        lines.append(f'<line class="grid" x2="{SIDE}" y1="{at}" y2="{at}"/>')
        texts.append(f'<span class="y" style="bottom:{100 * share:.1f}%">{escape(text)}</span>')
    for value, text in x.ticks:
        share = x.share(value)
        at = _round(share)
        lines.append(f'<line class="grid" y2="{SIDE}" x1="{at}" x2="{at}"/>')
        texts.append(f'<span class="x" style="left:{100 * share:.1f}%">{escape(text)}</span>')
    picture = "".join(lines) + drawn if grid else drawn + lines[0]
    around = "".join(texts) + words
    return (
        f'<div class="ylabel">{escape(up)}</div><div class="area">'
        f'<svg viewBox="0 0 {SIDE} {SIDE}" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(up)} against {escape(across)}">{picture}</svg>{around}</div>'
        f'<div class="xlabel">{escape(across)}</div>'
    )


def _keys(names: Iterable[tuple[str, int, bool, bool]]) -> str:
    """What is which: (name, colour, as a point, as a band)."""
    found = []
    for name, i, point, band in names:
        if band:
            mark = f'<rect width="100%" height="100%" class="band" {_fill(i)}/>'
        elif point:
            mark = f'<circle cx="50%" cy="50%" r="4" {_fill(i)}/>'
        else:
            mark = f'<line x2="100%" y1="50%" y2="50%" stroke-width="2" {stroke(i)}/>'
        found.append(_key(name, mark))
    return f'<div class="keys">{"".join(found)}</div>'


def _key(name: str, mark: str) -> str:
    return f'<span class="key"><svg aria-hidden="true">{mark}</svg>{escape(name)}</span>'


def _stairs(x: Sequence[float], y: Sequence[float]) -> tuple[list[float], list[float]]:
    """Each value holds until the next."""
    across = [value for value in x for _ in (0, 1)]
    up = [value for value in y for _ in (0, 1)]
    return across[1:], up[:-1]


def _band(x: Sequence[float], low: Sequence[float], high: Sequence[float], colour: int) -> str:
    path = _path([*x, *x[::-1]], [*high, *low[::-1]])
    return f'<path class="band" {_fill(colour)} d="M{path}z"/>'


def _ends(x: Sequence[float], low: Sequence[float], high: Sequence[float], colour: int) -> str:
    path = "".join(f"M{_point(a, b)}V{_round(1 - c)}" for a, b, c in zip(x, low, high, strict=True))
    return f'<path class="ends" {stroke(colour, False)} d="{path}"/>'


def _path(x: Sequence[float], y: Sequence[float]) -> str:
    return "L".join(_point(a, b) for a, b in zip(x, y, strict=True))


def _point(x: float, y: float) -> str:
    return f"{_round(x)} {_round(1 - y)}"


def _round(share: float) -> str:
    return str(round(SIDE * share))


def _fill(i: int) -> str:
    return f'fill="var(--s{i % COLOURS})"'


def stroke(i: int, dashed: bool = True) -> str:
    """Colour and dashes of series `i`."""
    dashes = _DASHES[i % COLOURS]
    dash = f' stroke-dasharray="{dashes}"' if dashed and dashes else ""
    return f'stroke="var(--s{i % COLOURS})"{dash}'
