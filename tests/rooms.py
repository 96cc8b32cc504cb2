"""How the code is built, in figures: depths of inheritance, methods of a class, class names that
several files have, who makes links for KV, the hooks of features, files that pass a parameter on,
and lines of code without docstrings, comments and blank lines.

    python -m tests.rooms

`tests/test_rooms.py` holds what is reached.
"""

from __future__ import annotations

import ast
import functools
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

from hwmodel.specs.device import load_device
from policies.serving import replica_builder
from policies.serving.building import build_replica
from policies.serving.replica import Replica
from policies.serving.run import Berth, Run
from sweeps.ask.size import SizeQuestion
from sweeps.ask.sized import Sized, SizedDevice
from tests.policies import small

ROOT = Path(__file__).resolve().parents[1]
FLOORS = ("hwmodel", "policies", "sweeps", "bankwise", "tools")
SEAMS = (
    ("policies/engines/connector.py", "Connector"),
    ("policies/engines/step_delays.py", "StepDelays"),
    ("policies/engines/memory_beside.py", "Rooms"),
    ("policies/engines/memory_beside.py", "Visitors"),
    ("policies/engines/memory_beside.py", "KeptTurns"),
    ("policies/engines/preempted_kv.py", "PreemptedKv"),
    ("policies/serving/node_controller.py", "Controller"),
)
OUTSIDE = {"ABC", "Protocol", "NamedTuple", "Enum", "IntEnum", "Exception", "Generic"}


@dataclass(frozen=True)
class Found:
    """A class of ours: its file below the root, bases by name, and its own methods."""

    name: str
    file: str
    bases: tuple[str, ...]
    methods: frozenset[str]


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Those inside others too."""
    for each in ast.iter_child_nodes(node):
        if isinstance(each, (ast.stmt, ast.ExceptHandler, ast.match_case)):
            yield each
            yield from statements(each)


def classes() -> list[Found]:
    """All that are defined at the top of a file."""
    return [
        Found(node.name, str(path.relative_to(ROOT)), _bases(node), _methods(node))
        for floor in FLOORS
        for path in sorted((ROOT / floor).rglob("*.py"))
        for node in parsed(path).body
        if isinstance(node, ast.ClassDef)
    ]


def _bases(node: ast.ClassDef) -> tuple[str, ...]:
    names = (ast.unparse(base).split("[")[0].split(".")[-1] for base in node.bases)
    return tuple(name for name in names if name not in OUTSIDE)


def _methods(node: ast.ClassDef) -> frozenset[str]:
    return frozenset(each.name for each in node.body if isinstance(each, ast.FunctionDef))


class Tree:
    """Classes by name. Of several with one name that in the same folder is meant."""

    def __init__(self, found: list[Found]) -> None:
        self._named: dict[str, list[Found]] = {}
        for each in found:
            self._named.setdefault(each.name, []).append(each)

    def of(self, name: str, beside: Found) -> Found | None:
        """The class that `beside` means by a name; None: it is not ours."""
        known = self._named.get(name, [])
        folder = Path(beside.file).parent
        return min(known, key=lambda each: Path(each.file).parent != folder, default=None)

    def depth(self, found: Found) -> int:
        """Levels of ours above a class."""
        above = [self.of(name, found) for name in found.bases]
        return max((1 + self.depth(each) for each in above if each not in (None, found)), default=0)  # type: ignore[arg-type]

    def lineage(self, found: Found) -> list[Found]:
        """A class and all of ours that it inherits from."""
        line = [found]
        for name in found.bases:
            each = self.of(name, found)
            if each is not None and each is not found:
                line += [one for one in self.lineage(each) if one not in line]
        return line

    def methods(self, found: Found) -> int:
        """How many a class has, with those that it inherits from ours."""
        return len(frozenset().union(*(each.methods for each in self.lineage(found))))

    @property
    def several(self) -> dict[str, list[str]]:
        """Public names that several files have, and these."""
        return {
            name: [each.file for each in found]
            for name, found in sorted(self._named.items())
            if len(found) > 1 and not name.startswith("_")
        }


def link_makers() -> list[str]:
    """Files of policies that make a link for KV: each is a way of its own for KV to move."""
    return [
        str(path.relative_to(ROOT))
        for path in sorted((ROOT / "policies").rglob("*.py"))
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call) and ast.unparse(node.func).split("[")[0] == "KvLink"
    ]


def hooks(file: str, name: str) -> tuple[set[str], set[str]]:
    """(Public methods of a base of features, names in code in the text at the head of its file.)"""
    tree = parsed(ROOT / file)
    own = next(each for each in tree.body if isinstance(each, ast.ClassDef) and each.name == name)
    public = {each for each in _methods(own) if not each.startswith("_")}
    return public, set(re.findall(r"`(\w+)`", ast.get_docstring(tree) or ""))


@contextmanager
def stays(folder: str) -> Iterator[list[str]]:
    """Files of a folder in the order in which what is done here comes through them, as it calls and
    returns: each is a stay. Functions of one or two statements are none: they are read where they
    are called."""
    long = _long(folder)
    found: list[str] = []
    line: list[tuple[str, str]] = []

    def seen(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            line.append((frame.f_code.co_filename, frame.f_code.co_name))
        elif event == "return" and line:
            line.pop()
        else:
            return
        file = next((each[0] for each in reversed(line) if each in long), "")
        if file and (not found or found[-1] != file):
            found.append(file)

    sys.setprofile(seen)
    try:
        yield found
    finally:
        sys.setprofile(None)


def walk() -> list[str]:
    """The stays of policies in which a replica of paging is made."""
    made: list[str] = []

    def traced(run: Run, berth: Berth) -> Replica:
        with stays("policies") as found:
            replica = build_replica(run, berth)
        made[:] = found
        return replica

    with mock.patch.object(replica_builder, "build_replica", traced):
        small.run(4096, small.mixed(4), policy={"name": "paged"})
    return made


def walk_of_size() -> list[str]:
    """The stays of sweeps from what `size` found to its line."""
    card = load_device("a100-80gb")
    target = SizeQuestion(model="llama-3.1-8b", workload="sharegpt", slo="ttft=2s,tpot=50ms")
    one = Sized(target.target_at(target.slo, "1"), {card.name: card},
                {card.name: SizedDevice(1, 2.0, 1)})  # fmt: skip
    with stays("sweeps") as found:
        target.section(one)
    return found


def _long(folder: str) -> set[tuple[str, str]]:
    """(File, name) of the functions of a folder with three statements or more."""
    return {
        (str(path), each.name)
        for path in (ROOT / folder).rglob("*.py")
        for each in ast.walk(parsed(path))
        if isinstance(each, ast.FunctionDef)
        and sum(isinstance(inner, ast.stmt) for inner in ast.walk(each)) > 4  # itself and its text
    }


def passed_on(parameter: str, folder: str = "policies") -> list[str]:
    """Files with a function that takes a parameter of this name."""
    return [
        str(path.relative_to(ROOT))
        for path in sorted((ROOT / folder).rglob("*.py"))
        if any(
            parameter in {each.arg for each in (*node.args.args, *node.args.kwonlyargs)}
            for node in ast.walk(parsed(path))
            if isinstance(node, ast.FunctionDef)
        )
    ]


def code_lines(folder: str) -> int:
    """Lines of code below a folder, without docstrings, comments and blank lines."""
    return sum(_code_lines(path.read_text()) for path in (ROOT / folder).rglob("*.py"))


def _code_lines(text: str) -> int:
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in (
            tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
            tokenize.ENDMARKER,
        ):  # fmt: skip
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        alone = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if alone and isinstance(node.value.value, str):  # type: ignore[attr-defined]
            lines -= set(range(node.lineno, (node.end_lineno or 0) + 1))  # type: ignore[attr-defined]
    return len(lines)


def main() -> None:
    """Print all figures."""
    found = classes()
    tree = Tree(found)
    depths = Counter(tree.depth(each) for each in found)
    print("levels of ours above a class:", dict(sorted(depths.items())))
    for each in sorted(found, key=tree.depth, reverse=True)[:6]:
        print(f"  {tree.depth(each)}  {each.name} ({each.file})")
    print("most methods, own and inherited:")
    for each in sorted(found, key=tree.methods, reverse=True)[:10]:
        many = len(tree.lineage(each))
        print(f"  {tree.methods(each)} of {many} classes, {len(each.methods)} own: {each.name}")
    print("class names in several files:", len(tree.several))
    for name, files in sorted(tree.several.items(), key=lambda each: -len(each[1]))[:12]:
        print(f"  {len(files)}  {name}")
    print("files that make a link for KV:", *sorted(set(link_makers())))
    for file, name in SEAMS:
        public, told = hooks(file, name)
        print(f"hooks of {name}: {len(public)}, of which {len(public & told)} at the file's head")
    for parameter in ("simulate", "watches", "metrics"):
        print(f"files of policies that take {parameter}: {len(passed_on(parameter))}")
    for what, way in (("making a replica", walk()), ("size, to its line", walk_of_size())):
        print(f"{what}: {len(way)} stays in {len(set(way))} files")
    for folder in (*FLOORS, "tests"):
        print(f"lines of code, {folder}: {code_lines(folder):,}")


if __name__ == "__main__":
    main()
