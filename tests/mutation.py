"""Which share of small changes to the product do the tests notice? A script, not a test.

    nice -n 10 .venv/bin/python tests/mutation.py --seed 1 --count 150 --out before.jsonl
    nice -n 10 .venv/bin/python tests/mutation.py --again before.jsonl --out after.jsonl

Mutants are drawn by a seed from the bodies of functions and the constants of modules; `--again`
draws those that survived an earlier run. Each is a fork of one process that has imported all tests:
the code of one function is replaced in memory, and the tests that execute its lines run, the quick
ones first, until one fails. Jitted functions, class bodies, defaults of arguments, annotations and
`raise` are left out.
"""

from __future__ import annotations

import argparse
import ast
import copy
import gc
import json
import os
import pickle
import random
import resource
import signal
import sys
import tempfile
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

ROOT = Path(__file__).parents[1]
ROOMS = ("policies/memory", "policies/allocators", "sweeps/results")
TESTS = (
    "policies/test_records.py", "policies/memory", "policies/allocators", "policies/engines",
    "policies/serving",
    "sweeps/results", "sweeps/reports/test_comparison.py", "sweeps/reports/test_report.py",
    "sweeps/reports/test_verdict.py", "sweeps/experiments/test_run.py",
)  # fmt: skip
SLOWEST_S, SPENT_S = 5.0, 15.0
"""CPU seconds: of the slowest test that is asked, and of all tests that are asked of a mutant."""
PAIRS = [
    (ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq), (ast.Is, ast.IsNot),
    (ast.In, ast.NotIn), (ast.Add, ast.Sub), (ast.Mult, ast.Div), (ast.LShift, ast.RShift),
    (ast.BitAnd, ast.BitOr), (ast.And, ast.Or), (ast.Continue, ast.Break),
]  # fmt: skip
OTHER: dict[Any, Any] = {a: b for pair in PAIRS for a, b in (pair, pair[::-1])}
OTHER |= {ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult}
NAMES = {"min": "max", "max": "min", "any": "all", "all": "any", "ceil": "floor", "floor": "ceil"}
BARRED = {"annotation", "returns", "decorator_list", "defaults", "kw_defaults"}
Mutant = dict[str, Any]
"""path, index (of the changes that its file offers), owner (its outermost function, or = and a
constant), lines, change."""


def other(node: Any) -> Any:
    """What a node is changed to; None: it stays."""
    new = copy.deepcopy(node)
    match node:
        case ast.Compare(ops=[op]):
            new.ops = [OTHER[type(op)]()]
        case ast.BinOp(op=op) | ast.BoolOp(op=op) if type(op) in OTHER:
            new.op = OTHER[type(op)]()
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            return new.operand
        case ast.Constant(value=bool(value)):
            new.value = not value
        case ast.Constant(value=int(value) | float(value)):
            new.value = value + 1
        case ast.Name(id=name) if name in NAMES:
            new.id = NAMES[name]
        case ast.Attribute(attr=name) if name in NAMES:
            new.attr = NAMES[name]
        case ast.If(test=test) | ast.IfExp(test=test):
            new.test = ast.UnaryOp(ast.Not(), test)
        case ast.AugAssign() | ast.Expr(value=ast.Call()):
            return ast.Pass()
        case ast.Return(value=value) if not isinstance(value, ast.Constant | None):
            return ast.Return(ast.Constant(None))
        case ast.Continue() | ast.Break():
            return OTHER[type(node)]()
        case _:
            return None
    return new


def changes(node: Any, names: str = "", owner: str = "", line: int = 0) -> Iterator[Any]:
    """(owner, lines, node, what it becomes, how) of what can be changed under a node, in order."""
    for field, value in ast.iter_fields(node):
        for at, child in enumerate(value if isinstance(value, list) else [value]):
            if field in BARRED or not isinstance(child, ast.AST) or isinstance(child, ast.Raise):
                continue
            inside, named = owner, names
            first = getattr(child, "lineno", 0) if isinstance(child, ast.stmt) else line
            if isinstance(child, ast.FunctionDef | ast.ClassDef):
                if "kernel" in map(ast.unparse, child.decorator_list):
                    continue
                named = f"{names}.{child.name}".lstrip(".")
                if isinstance(child, ast.FunctionDef):
                    inside = owner or named
            elif isinstance(node, ast.Module) and isinstance(child, ast.Assign | ast.AnnAssign):
                inside = "=" + ast.unparse(getattr(child, "targets", None) or [child.target])
            held: Any = value if isinstance(value, list) else vars(node)
            if inside and not isinstance(child, ast.FunctionDef) and (new := other(child)):
                yield (
                    inside,
                    (first, child.end_lineno),
                    child,
                    new,
                    (held, at if held is value else field),
                )
            yield from changes(child, named, inside, first)


def codes(code: types.CodeType) -> dict[tuple[str, int], types.CodeType]:
    """The code objects of a module by qualified name and first line."""
    inner = [const for const in code.co_consts if isinstance(const, types.CodeType)]
    found = {(each.co_qualname, each.co_firstlineno): each for each in inner}
    return found | {key: each for const in inner for key, each in codes(const).items()}


def drawn(rooms: list[str], seed: int) -> list[Mutant]:
    """Every mutant of these rooms, in the seed's order."""
    found = []
    for path in sorted(path for room in rooms for path in (ROOT / room).glob("*.py")):
        for index, (owner, lines, *parts, _) in enumerate(changes(ast.parse(path.read_text()))):
            change = " -> ".join(ast.unparse(part).splitlines()[0] for part in parts)
            found.append(
                {"path": str(path.relative_to(ROOT)), "index": index, "owner": owner,
                 "lines": lines, "change": change}
            )  # fmt: skip
    random.Random(seed).shuffle(found)
    return found


def mutate(mutant: Mutant) -> bool:
    """Change this process; False where the change is not of code that can be replaced."""
    path, owner = str(ROOT / mutant["path"]), mutant["owner"]
    tree = ast.parse(Path(path).read_text())
    before = codes(compile(tree, path, "exec", dont_inherit=True))
    *_, node, new, (held, key) = list(changes(tree))[mutant["index"]]
    held[key] = ast.copy_location(new, node)
    after = codes(compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True))
    if owner[0] == "=":
        old = vars(sys.modules[mutant["path"][:-3].replace("/", ".")])
        body = [n for n in tree.body if n.lineno <= mutant["lines"][0] <= (n.end_lineno or 0)]
        exec(compile(ast.Module(body, []), path, "exec"), now := old.copy())
        value, name = old[owner[1:]], owner[1:]
        for other in list(sys.modules.values()):
            if vars(other).get(name) is value:
                setattr(other, name, now[name])
        return True
    found = [key for key in before if key[0] == owner and before[key] != after.get(key)]
    if not found or after[found[0]].co_freevars != before[found[0]].co_freevars:
        return False
    for each in gc.get_objects():
        if isinstance(each, types.FunctionType) and each.__code__ == before[found[0]]:
            each.__code__ = after[found[0]]
    return True


def in_a_fork(do: Callable[[], Any]) -> Any:
    """What `do` returns in a child; None where the child was killed."""
    with tempfile.NamedTemporaryFile() as file:
        child = os.fork()
        if not child:
            resource.setrlimit(resource.RLIMIT_AS, (12 << 30, 12 << 30))
            try:
                Path(file.name).write_bytes(pickle.dumps(do()))
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        text = Path(file.name).read_bytes()
        return pickle.loads(text) if text else None


def passes(items: list[pytest.Item], at: int) -> bool:
    following = items[at + 1] if items[at + 1 :] else None
    return not any(r.failed for r in runtestprotocol(items[at], log=False, nextitem=following))


class Sampler:
    """A pytest plugin that runs mutants instead of the tests."""

    def __init__(self, mutants: list[Mutant], count: int, out: Path) -> None:
        self.mutants, self.count, self.out = mutants, count, out
        self.files = {str(ROOT / mutant["path"]) for mutant in mutants}

    def pytest_configure(self) -> None:
        from hypothesis import Phase, settings  # pytest rewrites its assertions first

        once = [Phase.explicit, Phase.generate]  # a failing example need not be a short one
        settings.register_profile("once", parent=settings.get_profile("ci"), phases=once)
        settings.load_profile("once")

    def baseline(self, items: list[pytest.Item]) -> list[tuple[float, int, set[tuple[str, int]]]]:
        """(CPU seconds, index, lines executed) of the tests that pass in time, quick ones first."""
        lines: set[tuple[str, int]] = set()

        def trace(frame: Any, event: str, _: Any) -> Any:
            if frame.f_code.co_filename not in self.files:
                return None
            lines.add((frame.f_code.co_filename, frame.f_lineno))
            return trace

        found = []
        signal.signal(signal.SIGPROF, lambda *_: pytest.fail("too slow"))
        for at in range(len(items)):
            lines.clear()
            begun = time.process_time()
            signal.setitimer(signal.ITIMER_PROF, SLOWEST_S)
            sys.settrace(trace)
            fine = passes(items, at)
            sys.settrace(None)
            signal.setitimer(signal.ITIMER_PROF, 0)
            found += [(time.process_time() - begun, at, set(lines))] if fine else []
        return sorted(found, key=lambda each: each[0])

    def verdict(self, mutant: Mutant, items: list[pytest.Item], costs: list[float]) -> str:
        if not mutate(mutant):
            return "invalid"
        if "probe_cache" in mutant["path"]:
            os.environ["BANKWISE_PROBE_CACHE"] = tempfile.mkdtemp()
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        for at, cost_s in enumerate(costs):
            signal.setitimer(signal.ITIMER_PROF, 5 + 4 * cost_s)
            if not passes(items, at):
                return f"killed by {items[at].nodeid}"
        return "survived"

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        known, done = in_a_fork(lambda: self.baseline(session.items)), []
        texts = [item.path.read_text() for item in session.items]
        for mutant in self.mutants:
            if len(done) == self.count:
                break
            name = mutant["owner"].partition("=")[2] or "\0"
            text = (ROOT / mutant["path"]).read_text().splitlines()
            first, last = mutant["lines"]
            lines = {
                (str(ROOT / mutant["path"]), at) for at, line in enumerate(text, start=1)
                if first <= at <= last or name in line
            }  # fmt: skip
            asked, costs = [], []
            for cost_s, at, executed in known:
                if (lines & executed or name in texts[at]) and sum(costs) < SPENT_S:
                    asked.append(session.items[at])
                    costs.append(cost_s)
            found = in_a_fork(lambda m=mutant, a=asked, c=costs: self.verdict(m, a, c))
            if found != "invalid":
                done.append(
                    {**mutant, "verdict": found or "killed by its end", "asked": len(asked)}
                )
                self.out.write_text("".join(json.dumps(each) + "\n" for each in done))
        killed = sum(each["verdict"] != "survived" for each in done)
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        minutes = sum(each.ru_utime + each.ru_stime for each in used) / 60
        print(f"\n{killed} of {len(done)} killed; {minutes:.0f} CPU minutes, {len(known)} tests")
        return True


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rooms", nargs="+", default=ROOMS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=150)
    parser.add_argument("--again", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    if given.again:
        records = map(json.loads, given.again.read_text().splitlines())
        mutants = [each for each in records if each["verdict"] == "survived"]
    else:
        mutants = drawn(given.rooms, given.seed)
    sys.path.insert(0, str(ROOT))
    flags = ["-q", "-s", "-m", "not long", "-p", "no:cacheprovider", "-p", "no:xdist"]
    with tempfile.TemporaryDirectory() as base:
        where = [f"--basetemp={base}/t", *(str(ROOT / "tests" / each) for each in TESTS)]
        sampler = Sampler(mutants, given.count, given.out)
        sys.exit(pytest.main([*flags, *where], plugins=[sampler]))


if __name__ == "__main__":
    main()
