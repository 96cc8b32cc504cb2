"""Do imports go down only, between floors, rooms and files; and has every name one meaning?

Imports are read, not run: those inside functions and for type checkers count as well. One test runs
them.
"""

from __future__ import annotations

import ast
import functools
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from sweeps.plan.experiment import Described
from sweeps.plan.measures import MEASURES
from sweeps.plan.rules import RULES
from sweeps.plan.sweep_spec import SweepSpec
from sweeps.report.account import page_at
from tests.rooms import (
    SEAMS,
    Tree,
    classes,
    hooks,
    link_makers,
    parsed,
    passed_on,
    statements,
    walk,
    walk_of_size,
)

ROOT = Path(__file__).resolve().parents[1]
FLOORS = ["hwmodel", "policies", "sweeps", "bankwise"]
LOWER = ("sweeps.plan", "sweeps.run", "sweeps.analyse", "sweeps.ask")
"""Rooms that neither show, search nor ask what to do: they never import those that do."""
UPPER = ("sweeps.report", "sweeps.study", "sweeps.cli")
FILES = [file.relative_to(ROOT) for floor in FLOORS for file in (ROOT / floor).rglob("*.py")]
MODULES = {".".join(f.with_suffix("").parts).removesuffix(".__init__"): f for f in FILES}


def imported(module: str) -> set[str]:
    """Our modules that this one names in its imports."""
    found = set()
    for node in statements(parsed(ROOT / MODULES[module])):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= inner & MODULES.keys() or {str(node.module)}
    return found & MODULES.keys() - {module}


@functools.cache
def imports() -> dict[str, set[str]]:
    """Module -> those of ours that it names."""
    return {module: imported(module) for module in MODULES}


def room(module: str) -> str:
    """`bankwise` is one."""
    return ".".join(module.split(".")[: 1 if module.startswith("bankwise") else 2])


def rooms() -> dict[str, set[str]]:
    """Which rooms each room imports from."""
    found: dict[str, set[str]] = {}
    for module, others in imports().items():
        if len(module.split(".")) > 1 or module == "bankwise":
            found.setdefault(room(module), set()).update({room(o) for o in others} - {room(module)})
    return found


def circle(graph: Mapping[str, set[str]]) -> list[str]:
    """The nodes of a circle, if there is one."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_floors_import_downwards() -> None:
    heights = {floor: i for i, floor in enumerate(FLOORS)}
    for module, others in imports().items():
        for other in others:
            assert heights[other.split(".")[0]] <= heights[module.split(".")[0]], (module, other)


def test_no_circle_of_rooms() -> None:
    assert not circle(rooms())


def test_the_drawing_of_the_architecture_shows_these_imports() -> None:
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    drawn = set(re.findall(r"^ +([\w.]+) --> ([\w.]+)$", page, re.MULTILINE))
    graph = rooms()

    def reached(start: str) -> set[str]:
        return {start}.union(*(reached(other) for other in graph[start]))

    needed = {
        (one, other)
        for one, others in graph.items()
        for other in others
        if not any(other in reached(via) for via in others - {other})
    }
    assert drawn == needed


def test_no_circle_of_files() -> None:
    assert not circle(imports())


def test_no_two_modules_of_one_name() -> None:
    names = Counter(file.stem for file in FILES if file.stem != "__init__")
    assert not [name for name, count in names.items() if count > 1]


def test_a_room_says_in_a_sentence_what_it_holds() -> None:
    for file in FILES:
        if file.stem == "__init__" and len(file.parts) > 2:
            first, *rest = parsed(ROOT / file).body
            assert isinstance(first, ast.Expr), file
            assert ast.literal_eval(first.value).strip().count(". ") == 0, file
            exports = (ast.Import, ast.ImportFrom, ast.Assign)
            assert all(isinstance(node, exports) for node in rest), file


def test_oracle_and_auditor_share_nothing_with_the_kernel() -> None:
    for module, others in imports().items():
        if room(module) == "hwmodel.oracle":
            assert not [other for other in others if room(other) == "hwmodel.kernel"], module
    for file in (ROOT / "tests/hwmodel/oracle").glob("reference*.py"):
        assert "hwmodel.kernel" not in file.read_text(encoding="utf-8"), file


def test_only_the_registries_name_a_rule_and_only_kinds_their_pages() -> None:
    assert all(issubclass(each, SweepSpec) for each in RULES.values())
    assert all(issubclass(each, Described) for each in MEASURES.values())
    named = {each.page for each in (*RULES.values(), *MEASURES.values()) if each.page}
    assert all(callable(page_at(page)) for page in named)
    rules = {each.partition(":")[0] for each in RULES.places.values()} - {SweepSpec.__module__}
    shared = page_at(SweepSpec.page).__module__
    pages = {str(each).partition(":")[0] for each in named} - {shared}
    for module, others in imports().items():
        if module != "sweeps.plan.rules" and room(module) != "sweeps.report":
            assert not others & rules, module
        assert not others & pages, module


SIMULATES = {
    "policies.serving.serving", "policies.serving.simulation", "sweeps.run.executor",
    "sweeps.run.explained_run", "sweeps.run.next_run", "sweeps.run.one_point",
    "sweeps.run.sweep_run", "sweeps.study.search", "sweeps.study.trial_batch",
}  # fmt: skip
KERNELS = {"hwmodel.kernel", "policies.engines", "policies.memory", "policies.transfers"}
CLOSED = {"hwmodel.measure.student", "hwmodel.measure.bounds"}
"""Of `hwmodel.measure`: what simulates nothing."""


def test_what_shows_simulates_nothing() -> None:
    for module, others in imports().items():
        if room(module) == "sweeps.report":
            assert not others & SIMULATES, module
            assert not {room(other) for other in others} & KERNELS, module
            assert {o for o in others if room(o) == "hwmodel.measure"} <= CLOSED, module


def test_a_program_needs_no_command_line() -> None:
    assert not [m for m in MODULES if room(m) == "bankwise" and "sweeps.cli" in
                {room(other) for other in imports()[m]}]  # fmt: skip


def test_what_runs_and_analyses_never_imports_what_shows() -> None:
    for module, others in imports().items():
        upper = {"sweeps.cli"} if room(module) == "sweeps.report" else UPPER
        if room(module) in (*LOWER, "sweeps.report"):
            assert not [other for other in others if room(other) in upper], module


LOADED = """
import sys
from contextlib import closing

def upper(task=None):
    if task is not None:
        measure(task)
    rooms = {rooms!r}
    return [name for name in sys.modules if name.startswith(rooms)]

import bankwise
assert not [name for name in sys.modules if name.startswith(("sweeps", "policies", "hwmodel"))]
sweep = bankwise.load("smoke", set={few!r})
assert not upper(), upper()
result = bankwise.run("smoke", set={few!r}, out="run", jobs=2)
assert len(result.records) == 4 and not upper(), upper()

from sweeps.plan.experiment import Task, measure
from sweeps.run.executor import execute


tasks = [Task(point.experiment, 1, 1.0) for point in sweep.points]
with closing(execute(upper, tasks, 2)) as outcomes:
    assert [(each.error, each.value) for each in outcomes] == [(None, []), (None, [])]
assert len(result.table()) == 2 and "sweeps.report.kinds" in upper()
"""


def test_neither_a_plan_nor_a_run_nor_a_worker_loads_a_report(tmp_path: Path) -> None:
    few = {"requests": 12, "warmup_requests": 4}
    code = LOADED.replace("{rooms!r}", repr(UPPER)).replace("{few!r}", repr(few))
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_the_code_does_not_grow_deeper_than_it_is() -> None:
    """What was reached; each may only fall (`python -m tests.rooms` prints who is at the limit)."""
    found = classes()
    tree = Tree(found)
    depths: dict[str, int] = {}
    for each in found:
        floor = each.file.split("/")[0]
        depths[floor] = max(depths.get(floor, 0), tree.depth(each))
    assert depths.pop("sweeps") <= 3
    assert max(depths.values()) <= 2
    assert max(tree.methods(each) for each in found) <= 40
    seam = next(each for each in found if each.name == "Connector")  # whose hooks all features have
    assert len(seam.methods) <= 25
    assert not tree.several


def test_public_names_are_nouns_of_the_field() -> None:
    """Of functions, their parameters and the fields of classes."""
    for floor in ("hwmodel", "policies", "sweeps", "bankwise"):
        for path in (ROOT / floor).rglob("*.py"):
            for name in public_names(parsed(path).body):
                assert not {"found", "told", "asked"} & set(name.split("_")), f"{path}: {name}"


def public_names(body: Sequence[ast.stmt]) -> Iterator[str]:
    """What others call by name."""
    for node in body:
        match node:
            case ast.ClassDef() if not node.name.startswith("_"):
                yield from public_names(node.body)
            case ast.FunctionDef() if not node.name.startswith("_"):
                yield node.name
                yield from (each.arg for each in (*node.args.args, *node.args.kwonlyargs))
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name


def test_kv_moves_in_one_way_and_a_run_is_handed_down_whole() -> None:
    assert set(link_makers()) == {"policies/transfers/fabric.py"}
    for seam in SEAMS:
        own, told = hooks(*seam)
        assert own - told <= {"connect"}, "hooks stand in the tables at the head of their base"
    assert len(passed_on("simulate")) <= 6
    assert len(passed_on("watches")) <= 1
    assert len(walk()) <= 79
    assert len(walk_of_size()) <= 17
