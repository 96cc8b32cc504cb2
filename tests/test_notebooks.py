"""Do the notebooks of `examples/notebooks` run, cell by cell, and does each last value show itself?

Without Jupyter: cells are executed as it would, in one namespace, in a process of their own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

NOTEBOOKS = Path(__file__).resolve().parents[1] / "examples/notebooks"
SHOWN = {"own_device": 5, "own_policy": 3, "odma_map": 3}
"""Notebook -> how many of its cells end in a value."""
RUNNER = """
import ast, json, sys
cells = [c for c in json.load(open(sys.argv[1]))["cells"] if c["cell_type"] == "code"]
space, shown = {"__name__": "__main__"}, 0
for number, cell in enumerate(cells):
    tree = ast.parse("".join(cell["source"]))
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, f"cell {number}", "exec"), space)
    if last is not None:
        value = eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), space)
        show = getattr(value, "_repr_html_", value.__repr__)
        assert show(), number
        shown += 1
print(shown)
"""


def test_each_notebook_is_tried() -> None:
    assert {path.stem for path in NOTEBOOKS.glob("*.ipynb")} == SHOWN.keys()


@pytest.mark.parametrize("name", SHOWN)
def test_a_notebook_asks_something_and_has_no_stale_output(name: str) -> None:
    cells = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]
    assert "?" in "".join(cells[0]["source"])
    assert not any(cell.get("outputs") for cell in cells)


@pytest.mark.long
@pytest.mark.parametrize("name", SHOWN)
def test_a_notebook_runs_to_its_end(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", RUNNER, NOTEBOOKS / f"{name}.ipynb"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-1] == str(SHOWN[name])
