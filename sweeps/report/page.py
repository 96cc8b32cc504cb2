"""Sections as one HTML page that needs no network."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from sweeps.report import drawing
from sweeps.report.chart import file_name
from sweeps.report.section import Block, Grid, Listing, Say, Section

_LIGHT = """--ink: #1c2024; --dim: #565f6a; --line: #d5d9de; --back: #fff;
        --control: #aebccd; --mark: #fff0b8; --warn: #a43c00;
        --s0: #0063a6; --s1: #c04a00; --s2: #007a57; --s3: #8a3f8a; --s4: #6a7280; --s5: #7a5c00;
        --s6: #2387b8; --s7: #b0305c"""
_PAGE = (
    f"""
:root {{ color-scheme: light dark; {_LIGHT} }}"""
    + """
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e8ea; --dim: #a3acb6; --line: #3a4048; --back: #15181c; --control: #4d5a6b;
          --mark: #4a3d10; --warn: #ff9d66;
          --s0: #5aa9e6; --s1: #f0914a; --s2: #3fc298; --s3: #d99ad9; --s4: #a7afba; --s5: #d6b545;
          --s6: #86d4f2; --s7: #f08cae }
}
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--back);
       max-width: 80rem; margin: 1.5rem auto; padding: 0 1rem; overflow-wrap: anywhere }
@media (max-width: 40rem) {
  td:first-child { min-width: 5rem; white-space: normal }
}
@media print {
  :root { color-scheme: light } body { max-width: none; font-size: 11px }
  .wide { overflow: visible } table { font-size: 9px } .csv { display: none }
  details, tr { break-inside: avoid-page }
}
"""
)
_BLOCKS = """
h1 { font-size: 1.5rem; line-height: 1.25; margin: 2rem 0 0 }
h2 { font-size: 1.2rem; margin: 1.8rem 0 .2rem } h3 { font-size: 1rem; margin: 1.2rem 0 .2rem }
h4, h5, h6 { font-size: .9rem; margin: 1rem 0 .2rem }
.question { font-size: 1.1rem; margin-top: .2rem }
.verdict { margin: .6rem 0; padding-left: .8rem; border-left: 3px solid var(--s0);
           max-width: 60rem }
.problem { margin: .6rem 0; padding-left: .8rem; border-left: 3px solid var(--warn);
           color: var(--warn); max-width: 60rem }
.dim { color: var(--dim); font-size: .85rem; margin: .4rem 0; max-width: 60rem }
.wide { overflow-x: auto; margin: .4rem 0 }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 23rem), 1fr));
          gap: 0 2rem }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9rem }
caption { text-align: left; font-weight: 600; font-size: .9rem }
th, td { padding: .25rem .5rem; border-bottom: 1px solid var(--line); text-align: right;
         overflow-wrap: normal }
td { white-space: nowrap }
th { vertical-align: bottom; line-height: 1.2 }
th button { all: unset; cursor: pointer } th button:focus-visible { outline: 2px solid var(--s0) }
th[aria-sort=ascending] button::after { content: " ▲" }
th[aria-sort=descending] button::after { content: " ▼" }
th:first-child, td:first-child { text-align: left; position: sticky; left: 0;
                                 background: var(--back) }
th:last-child, td:last-child, .text td { text-align: left }
td:last-child { white-space: normal; min-width: 15rem }
.text td { white-space: normal; min-width: 8rem; max-width: 30rem; overflow-wrap: anywhere }
tr.control td { color: var(--dim) }
tr.marked td, mark { background: var(--mark); color: inherit }
dl { columns: 24rem; column-gap: 2rem; font-size: .85rem; margin: .3rem 0 1rem }
dl div { break-inside: avoid } dt { display: inline; color: var(--dim) }
dt::after { content: " = " } dd { display: inline; margin: 0 }
details { margin: .6rem 0; border-top: 1px solid var(--line) }
summary { cursor: pointer; font-weight: 600; padding: .4rem 0 }
"""
_FRAGMENT = """font: 14px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--back);
overflow-wrap: anywhere; padding: 0 .5rem;"""
_SCRIPT = """
for (const table of document.querySelectorAll("table.sorts")) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  heads.forEach((head, i) => head.firstChild.addEventListener("click", () => {
    const down = head.getAttribute("aria-sort") === "ascending";
    heads.forEach(other => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const rows = [...body.rows], texts = new Map(rows.map(row => [row, row.cells[i].textContent]));
    const value = text => parseFloat(text.replace(/[,\\s]/g, ""));
    rows.sort((a, b) => {
      const [s, t] = [texts.get(a), texts.get(b)], [x, y] = [value(s), value(t)];
      if (isNaN(x) !== isNaN(y)) return isNaN(x) ? 1 : -1;
      return (down ? -1 : 1) * (isNaN(x) ? s.localeCompare(t) : x - y);
    });
    body.append(...rows);
  }));
}
let folded = [];
addEventListener("beforeprint", () => {
  folded = [...document.querySelectorAll("details:not([open])")];
  folded.forEach(item => { item.open = true; });
});
addEventListener("afterprint", () => folded.forEach(item => { item.open = false; }));
"""


def page(sections: list[Section]) -> str:
    """One self-contained page."""
    title = escape(", ".join(section.title for section in sections))
    body = "\n".join(line for section in sections for line in _section(section, 1, ()))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title} - bankwise</title><style>{_BLOCKS}{drawing.STYLE}{_PAGE}</style></head>\n"
        f"<body>\n{body}\n<script>{_SCRIPT}</script></body></html>\n"
    )


def fragment(sections: list[Section]) -> str:
    """What a notebook shows: the same in light colours, its style kept to itself."""
    body = "\n".join(line for section in sections for line in _section(section, 3, ()))
    style = f".bankwise {{ {_LIGHT}; {_FRAGMENT} {_BLOCKS}{drawing.STYLE} }}"
    return f'<div class="bankwise"><style>{style}</style>\n{body}\n</div>\n'


def _section(section: Section, level: int, above: tuple[str, ...]) -> Iterator[str]:
    title = escape(section.title)
    if section.folded:
        yield f"<details><summary>{title}</summary>"
    else:
        yield f"<h{level}>{title}</h{level}>"
    titles = (*above, section.title)
    charts = False
    for block in section.blocks:
        drawn = not isinstance(block, (Say, Grid, Listing, Section))
        if drawn != charts:
            yield '<div class="charts">' if drawn else "</div>"
            charts = drawn
        yield from _block(block, min(level + 1, 6), titles)
    if charts:
        yield "</div>"
    if section.folded:
        yield "</details>"


def _block(block: Block, level: int, titles: tuple[str, ...]) -> Iterator[str]:
    match block:
        case Say():
            kind = "dim" if block.kind == "note" else block.kind
            yield f'<p class="{kind}">{_say(block)}</p>'
        case Grid():
            yield _grid(block)
        case Listing():
            yield _listing(block)
        case Section():
            yield from _section(block, level, titles)
        case _:
            yield drawing.figure(block, file_name(*titles, block.title))


def _say(block: Say) -> str:
    """A verdict's subject stands out; a number keeps its percent sign at the end of a line."""
    title, colon, rest = block.text.partition(": ")
    if block.kind == "verdict" and colon and "(" not in title:
        return f"<b>{escape(title)}</b>: {_prose(rest)}"
    return _prose(block.text)


def _prose(text: str) -> str:
    return escape(text).replace(" %", "&nbsp;%")


def _grid(grid: Grid) -> str:
    heads = "".join(f"<th><button>{escape(text)}</button></th>" for text in grid.columns)
    rows = []
    for i, cells in enumerate(grid.rows):
        names = ["control"] * (i in grid.dim) + ["marked"] * (i in grid.marked)
        kind = f' class="{" ".join(names)}"' if names else ""
        rows.append(f"<tr{kind}>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>")
    kind = "sorts text" if grid.text else "sorts"
    caption = f"<caption>{escape(grid.title)}</caption>" if grid.title else ""
    return (
        f'<div class="wide" tabindex="0"><table class="{kind}">{caption}'
        f"<thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _listing(listing: Listing) -> str:
    items = "".join(
        f"<div><dt>{escape(key)}</dt><dd>{escape(value)}</dd></div>"
        for key, value in listing.items.items()
    )
    title = f"<h4>{escape(listing.title)}</h4>" if listing.title else ""
    return f"{title}<dl>{items}</dl>"
