"""Which share of small changes to the product do the tests notice? A script, not a test.

    nice -n 10 python tests/mutation.py --seed 1 --count 150 --out before.jsonl
    nice -n 10 python tests/mutation.py --again before.jsonl --out after.jsonl

Mutants are drawn by a seed from the bodies of functions and the constants of modules; `--again`
draws those that survived in an earlier run. Each is a fork of one process that has imported all
tests: the code of one function is replaced in memory, and the tests that execute its lines run, the
quick ones first, until one fails. Jitted functions, class bodies, default arguments, annotations
and the arguments of `raise` are left out.
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
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from _pytest.runner import runtestprotocol

ROOT = Path(__file__).parents[1]
ROOMS = ("policies/memory", "policies/allocators", "sweeps/results")
TESTS = (
    "policies/memory", "policies/allocators", "policies/engines", "policies/serving",
    "sweeps/results", "sweeps/reports/test_comparison.py", "sweeps/reports/test_report.py",
    "sweeps/reports/test_verdict.py", "sweeps/experiments/test_run.py",
)  # fmt: skip
SLOWEST_S, SPENT_S = 5.0, 15.0
"""CPU seconds: of the slowest test that is asked, and of all tests that are asked of a mutant."""
COMPARE = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
           ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn,
           ast.NotIn: ast.In}  # fmt: skip
BINARY = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
          ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult, ast.LShift: ast.RShift,
          ast.RShift: ast.LShift, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd}  # fmt: skip
NAMES = {"min": "max", "max": "min", "any": "all", "all": "any", "ceil": "floor", "floor": "ceil"}
BARRED = {"annotation", "returns", "decorator_list", "defaults", "kw_defaults"}


class Mutant(NamedTuple):
    path: str
    index: int
    """Of the changes that its file offers."""
    owner: str
    """Qualified name of the outermost function, or name of the constant."""
    lines: tuple[int, int]
    change: str


class Change(NamedTuple):
    owner: str
    lines: tuple[int, int]
    node: ast.AST
    new: ast.AST
    put: Callable[[Any], None]


def others(node: ast.AST) -> Iterator[ast.AST]:
    """What a node is changed to, one at a time."""
    new: Any = copy.deepcopy(node)
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        new.ops = [COMPARE[type(node.ops[0])]()]
        yield new
    elif isinstance(node, ast.BinOp) and type(node.op) in BINARY:
        new.op = BINARY[type(node.op)]()
        yield new
    elif isinstance(node, ast.BoolOp):
        new.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield new
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub)):
        yield new.operand
    elif isinstance(node, ast.Constant) and isinstance(node.value, (bool, int, float)):
        new.value = (not node.value) if isinstance(node.value, bool) else node.value + 1
        yield new
    elif isinstance(node, ast.Name) and node.id in NAMES:
        yield ast.Name(NAMES[node.id], ast.Load())
    elif isinstance(node, ast.Attribute) and node.attr in NAMES:
        new.attr = NAMES[node.attr]
        yield new
    elif isinstance(node, (ast.If, ast.IfExp)):
        new.test = ast.UnaryOp(ast.Not(), node.test)
        yield new
    elif isinstance(node, ast.AugAssign) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    ):
        yield ast.Pass()
    elif isinstance(node, ast.Return) and not isinstance(node.value, (ast.Constant, type(None))):
        yield ast.Return(ast.Constant(None))
    elif isinstance(node, (ast.Continue, ast.Break)):
        yield ast.Break() if isinstance(node, ast.Continue) else ast.Continue()


def changes(node: ast.AST, names: tuple[str, ...] = (), owner: str = "", line: int = 0) -> Iterator[Change]:  # fmt: skip
    """What can be changed under a node, in the order of the text."""
    for field, value in ast.iter_fields(node):
        many = value if isinstance(value, list) else [value]
        for at, child in enumerate(many):
            if field in BARRED or not isinstance(child, ast.AST) or isinstance(child, ast.Raise):
                continue
            inside, named, first = owner, names, line
            if isinstance(child, ast.stmt):
                first = child.lineno
            if isinstance(child, (ast.FunctionDef, ast.ClassDef)):
                if "kernel" in ast.unparse(child.decorator_list):  # type: ignore[arg-type]
                    continue
                named = (*names, child.name)
                if isinstance(child, ast.FunctionDef):
                    inside = owner or ".".join(named)
            elif isinstance(node, ast.Module) and isinstance(child, (ast.Assign, ast.AnnAssign)):
                target = child.targets[0] if isinstance(child, ast.Assign) else child.target
                inside = f"={ast.unparse(target)}"

            def put(new: Any, value: Any = value, field: str = field, at: int = at) -> None:
                if isinstance(value, list):
                    value[at] = new
                else:
                    setattr(node, field, new)

            if inside and not isinstance(child, ast.FunctionDef):
                for new in others(child):
                    yield Change(inside, (first, child.end_lineno), child, new, put)  # type: ignore[attr-defined]
            yield from changes(child, named, inside, first)


def codes(code: types.CodeType) -> dict[tuple[str, int], types.CodeType]:
    """The code objects of a module by qualified name and first line."""
    found = {}
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            found |= {(const.co_qualname, const.co_firstlineno): const, **codes(const)}
    return found


def drawn(rooms: list[str], seed: int) -> list[Mutant]:
    """Every mutant of these rooms, in the seed's order."""
    found = []
    for path in sorted(path for room in rooms for path in (ROOT / room).glob("*.py")):
        for index, change in enumerate(changes(ast.parse(path.read_text()))):
            texts = (ast.unparse(part).splitlines()[0] for part in (change.node, change.new))
            told = (str(path.relative_to(ROOT)), index, change.owner, change.lines)
            found.append(Mutant(*told, " -> ".join(texts)))
    random.Random(seed).shuffle(found)
    return found


def mutate(mutant: Mutant) -> bool:
    """Change this process; False where the change is not of code that can be replaced."""
    path = str(ROOT / mutant.path)
    tree = ast.parse(Path(path).read_text())
    before = codes(compile(tree, path, "exec", dont_inherit=True))
    change = list(changes(tree))[mutant.index]
    change.put(ast.copy_location(change.new, change.node))
    ast.fix_missing_locations(tree)
    after = codes(compile(tree, path, "exec", dont_inherit=True))
    module = sys.modules[mutant.path.removesuffix(".py").replace("/", ".")]
    if mutant.owner.startswith("="):
        name, new = mutant.owner[1:], vars(module).copy()
        node = next(n for n in tree.body if n.lineno <= mutant.lines[0] <= (n.end_lineno or 0))
        exec(compile(ast.Module([node], []), path, "exec"), new)
        for other in list(sys.modules.values()):
            if name in vars(module) and vars(other).get(name) is vars(module)[name] is not new[name]:
                setattr(other, name, new[name])
        return name in new
    keys = [key for key in before if before[key] != after.get(key) and key[0] == mutant.owner]
    if not keys or after[keys[0]].co_freevars != before[keys[0]].co_freevars:
        return False
    found = [
        each for each in gc.get_objects()
        if isinstance(each, types.FunctionType) and each.__code__ == before[keys[0]]
    ]  # fmt: skip
    for each in found:
        each.__code__ = after[keys[0]]
    return bool(found)


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


def passes(item: pytest.Item, following: pytest.Item | None) -> bool:
    return not any(r.failed for r in runtestprotocol(item, log=False, nextitem=following))


class Sampler:
    """A pytest plugin that runs mutants instead of the tests."""

    def __init__(self, mutants: list[Mutant], count: int, out: Path) -> None:
        self.mutants, self.count, self.out = mutants, count, out
        self.files = {str(ROOT / mutant.path) for mutant in mutants}

    def pytest_configure(self) -> None:
        from hypothesis import Phase, settings  # pytest rewrites its assertions first

        once = [Phase.explicit, Phase.generate]  # a failing example need not be a short one
        settings.register_profile("once", parent=settings.get_profile("ci"), phases=once)
        settings.load_profile("once")

    def baseline(self, items: list[pytest.Item]) -> list[tuple[float, set[tuple[str, int]]] | None]:
        """(CPU seconds, lines executed) of each test; None where it fails or is too slow."""
        lines: set[tuple[str, int]] = set()

        def local(frame: Any, event: str, _: Any) -> Any:
            lines.add((frame.f_code.co_filename, frame.f_lineno))
            return local

        def called(frame: Any, event: str, _: Any) -> Any:
            return local(frame, event, _) if frame.f_code.co_filename in self.files else None

        found: list[Any] = []
        signal.signal(signal.SIGPROF, lambda *_: pytest.fail("too slow"))
        for item, following in zip(items, [*items[1:], None], strict=True):
            lines.clear()
            begun = time.process_time()
            signal.setitimer(signal.ITIMER_PROF, SLOWEST_S)
            sys.settrace(called)
            fine = passes(item, following)
            sys.settrace(None)
            signal.setitimer(signal.ITIMER_PROF, 0)
            found.append((time.process_time() - begun, set(lines)) if fine else None)
        return found

    def verdict(self, mutant: Mutant, items: list[tuple[float, pytest.Item]]) -> str:
        if not mutate(mutant):
            return "invalid"
        if "probe_cache" in mutant.path:
            os.environ["BANKWISE_PROBE_CACHE"] = tempfile.mkdtemp()
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        for at, (spent_s, item) in enumerate(items):
            signal.setitimer(signal.ITIMER_PROF, 5 + 4 * spent_s)
            if not passes(item, items[at + 1][1] if items[at + 1 :] else None):
                return f"killed by {item.nodeid}"
        return "survived"

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        cost = in_a_fork(lambda: self.baseline(session.items))
        known = [(*each, item) for each, item in zip(cost, session.items, strict=True) if each]
        texts = {item.path: item.path.read_text() for item in session.items}
        tally: Counter[str] = Counter()
        with self.out.open("w") as file:
            for mutant in self.mutants:
                if sum(tally.values()) == self.count:
                    break
                name = mutant.owner[1:] if mutant.owner[0] == "=" else "\0"
                text = (ROOT / mutant.path).read_text().splitlines()
                at = {
                    (str(ROOT / mutant.path), n) for n, line in enumerate(text, start=1)
                    if mutant.lines[0] <= n <= mutant.lines[1]
                    or name in line
                }  # fmt: skip
                asked, spent_s = [], 0.0
                for cost_s, lines, item in sorted(known, key=lambda each: each[0]):
                    if (at & lines or name in texts[item.path]) and spent_s < SPENT_S:
                        asked.append((cost_s, item))
                        spent_s += cost_s
                found = in_a_fork(lambda m=mutant, a=asked: self.verdict(m, a)) or "killed by its end"
                if found == "invalid":
                    continue
                tally[found.split()[0]] += 1
                file.write(json.dumps({**mutant._asdict(), "verdict": found, "asked": len(asked)}) + "\n")  # fmt: skip
                file.flush()
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        minutes = sum(each.ru_utime + each.ru_stime for each in used) / 60
        told = f"{dict(tally)} of {len(self.mutants)} in {minutes:.1f} CPU minutes; {len(known)} tests\n"  # fmt: skip
        self.out.with_suffix(".txt").write_text(told)
        return True


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rooms", nargs="+", default=ROOMS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=150)
    parser.add_argument("--again", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    mutants = drawn(asked.rooms, asked.seed)
    if asked.again:
        records = [json.loads(line) for line in asked.again.read_text().splitlines()]
        left = [each for each in records if each["verdict"] == "survived"]
        mutants = [Mutant(*(each[field] for field in Mutant._fields)) for each in left]
    sys.path.insert(0, str(ROOT))
    plugin = Sampler(mutants, asked.count, asked.out.absolute())
    flags = ["-q", "-m", "not long", "-p", "no:cacheprovider", "-p", "no:xdist"]
    with tempfile.TemporaryDirectory() as base:
        where = [str(ROOT / "tests" / each) for each in TESTS]
        sys.exit(pytest.main([*flags, f"--basetemp={base}/t", *where], plugins=[plugin]))


if __name__ == "__main__":
    main()
