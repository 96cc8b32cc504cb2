"""The tables of a report as LaTeX (booktabs), for a paper."""

from __future__ import annotations

import re
from collections.abc import Iterator

from sweeps.sections.section import Block, Grid, Section, fitted

_MARKS = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$",
    "–": "--", "−": "$-$", "²": r"\textsuperscript{2}", "<": "$<$", ">": "$>$", "×": r"$\times$",
}  # fmt: skip
_MARK = re.compile("|".join(map(re.escape, _MARKS)))


def latex(section: Section) -> str:
    """The tables of a report that its page shows unfolded, each captioned with its section."""
    tables = [_table(title, grid) for title, grid in _grids(section.blocks, section.title)]
    return "% needs \\usepackage{booktabs}\n" + "\n".join(tables)


def _grids(blocks: list[Block], title: str) -> Iterator[tuple[str, Grid]]:
    for block in fitted(blocks):
        if isinstance(block, Grid):
            yield block.title or title, block
        elif isinstance(block, Section) and not block.folded:
            yield from _grids(block.blocks, block.title or title)


def _table(title: str, grid: Grid) -> str:
    sides = grid.sides.replace("<", "l").replace(">", "r")
    return "\n".join([
        r"\begin{table}", rf"  \caption{{{_escaped(title)}}}", rf"  \begin{{tabular}}{{{sides}}}",
        r"    \toprule", _row(grid.columns), r"    \midrule", *map(_row, grid.rows),
        r"    \bottomrule", r"  \end{tabular}", r"\end{table}", "",
    ])  # fmt: skip


def _row(cells: list[str]) -> str:
    return f"    {' & '.join(map(_escaped, cells))} \\\\"


def _escaped(text: str) -> str:
    return _MARK.sub(lambda found: _MARKS[found[0]], text)
