"""Are a report's tables written as LaTeX that a paper can take?"""

from __future__ import annotations

from pathlib import Path

from sweeps.report.latex import latex
from sweeps.sections.section import Grid, Section
from tests.sweeps.cli.test_command_line import bankwise
from tests.sweeps.made import made


def test_marks_of_latex_are_escaped_and_sides_kept() -> None:
    grid = Grid("", ["a_b", "50 %"], [["x & y", "1 ± 2"], ["z", "–"]])
    text = latex(Section("Who {leads}", [grid, Section("", [grid], folded=True)]))
    assert text.count(r"\begin{tabular}{lr}") == 1
    assert r"a\_b & 50 \% \\" in text and r"x \& y & 1 $\pm$ 2 \\" in text
    assert r"\caption{Who \{leads\}}" in text and r"z & -- \\" in text


def test_a_runs_tables_are_exported(tmp_path: Path) -> None:
    made(tmp_path / "run")
    done = bankwise("export", "run", "--format", "latex", "--out", "a.tex", cwd=tmp_path)
    assert done.returncode == 0 and done.stdout.startswith("wrote a.tex: ")
    text = (tmp_path / "a.tex").read_text()
    assert text.count("{tabular}") % 2 == 0 and text.count(r"\toprule") > 1
