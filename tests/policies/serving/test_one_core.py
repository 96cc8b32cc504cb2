"""Is there one loop over what happens, and one scheduler class a generation?

What a feature adds is a component, a controller or a source, and no loop or subclass of its own.
"""

from __future__ import annotations

import ast
from pathlib import Path

from policies.engines.engine import Engine
from policies.engines.schedulers import SCHEDULERS

ROOT = Path(__file__).resolve().parents[3]
HEAPS = {
    "policies/serving/simulation.py": "what happens when",
    "policies/serving/replica.py": "requests that are known to come",
    "policies/serving/cluster.py": "requests that leave at the end of a step",
    "policies/serving/drop_groups.py": "groups by size",
}
"""Files of the serving room that keep a heap, and of what."""


def calls(file: Path, name: str) -> int:
    """How often a file calls a function or method of this name."""
    nodes = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
    found = (node.func for node in nodes if isinstance(node, ast.Call))
    return sum(isinstance(each, ast.Attribute) and each.attr == name for each in found)


def code(file: Path) -> list[str]:
    """Its expressions that are calls, as text, without comments and docstrings."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return [ast.unparse(node) + "(" for node in ast.walk(tree) if isinstance(node, ast.Call)]


def test_one_loop_pops_events() -> None:
    heaps = {
        str(file.relative_to(ROOT))
        for file in (ROOT / "policies" / "serving").glob("*.py")
        if calls(file, "heappop")
    }
    assert heaps <= HEAPS.keys()


def test_steps_are_begun_and_ended_in_one_place() -> None:
    """`Replica.begin` is called by units alone, and `Replica.end` by the event core alone."""

    def callers(text: str) -> set[str]:
        files = [*(ROOT / "policies").rglob("*.py")]
        found = [file for file in files if any(text in line for line in code(file))]
        return {str(file.relative_to(ROOT)) for file in found}

    assert callers("replica.end(") == {"policies/serving/simulation.py"}
    assert callers(".begin(at_s)") == {
        "policies/serving/simulation.py", "policies/serving/unit.py"
    }  # fmt: skip


def test_engines_are_one_a_scheduler() -> None:
    def subclasses(kind: type) -> set[type]:
        return {each for sub in kind.__subclasses__() for each in {sub, *subclasses(sub)}}

    shipped = {each for each in subclasses(Engine) if each.__module__.startswith("policies.")}
    assert shipped <= set(SCHEDULERS.values())
