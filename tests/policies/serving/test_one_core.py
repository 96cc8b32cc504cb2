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


def callers(files: str, text: str) -> set[str]:
    """Those files in which an expression that is a call begins or ends with this text."""
    found = set()
    for file in ROOT.glob(files):
        if text.partition("(")[0] in (code := file.read_text(encoding="utf-8")):
            calls = (each for each in ast.walk(ast.parse(code)) if isinstance(each, ast.Call))
            if any(text in ast.unparse(each) for each in calls):
                found.add(str(file.relative_to(ROOT)))
    return found


def test_one_loop_pops_events_and_begins_and_ends_steps() -> None:
    """`Replica.begin` is called by units alone, and `Replica.end` by the event core alone."""
    assert callers("policies/serving/*.py", "heappop(") <= HEAPS.keys()
    assert callers("policies/**/*.py", "replica.end(") == {"policies/serving/simulation.py"}
    assert callers("policies/**/*.py", ".begin(at_s)") == {
        "policies/serving/simulation.py", "policies/serving/unit.py"
    }  # fmt: skip


def test_engines_are_one_a_scheduler() -> None:
    def subclasses(kind: type) -> set[type]:
        return {each for sub in kind.__subclasses__() for each in {sub, *subclasses(sub)}}

    shipped = {each for each in subclasses(Engine) if each.__module__.startswith("policies.")}
    assert shipped <= set(SCHEDULERS.values())
