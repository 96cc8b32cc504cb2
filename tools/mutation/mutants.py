"""What `mutation.py` changes: one operator, constant, condition or statement of the product.

Left out are jitted functions, class bodies, defaults of arguments, annotations and `raise`.
"""

from __future__ import annotations

import ast
import copy
import gc
import importlib
import random
import sys
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PAIRS = [
    (ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq), (ast.Is, ast.IsNot),
    (ast.In, ast.NotIn), (ast.Add, ast.Sub), (ast.Mult, ast.Div), (ast.LShift, ast.RShift),
    (ast.BitAnd, ast.BitOr), (ast.And, ast.Or), (ast.Continue, ast.Break),
]  # fmt: skip
OTHER: dict[Any, Any] = {a: b for pair in PAIRS for a, b in (pair, pair[::-1])}
OTHER |= {ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult}
NAMES = {"min": "max", "max": "min", "any": "all", "all": "any", "ceil": "floor", "floor": "ceil"}
COMPILED = {"kernel", "called", "simulation"}
"""Decorators of `hwmodel.kernel.jit`, whose functions are machine code when they are changed."""
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
                if COMPILED.intersection(map(ast.unparse, child.decorator_list)):
                    continue
                named = f"{names}.{child.name}".lstrip(".")
                if isinstance(child, ast.FunctionDef):
                    inside = owner or named
            elif isinstance(node, ast.Module) and isinstance(child, ast.Assign | ast.AnnAssign):
                names_of = child.targets if isinstance(child, ast.Assign) else [child.target]
                inside = "=" + ", ".join(map(ast.unparse, names_of))
            held: Any = value if isinstance(value, list) else vars(node)
            if inside and not isinstance(child, ast.FunctionDef) and (new := other(child)):
                yield (
                    inside,
                    (first, getattr(child, "end_lineno", first)),
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


def drawn(rooms: Sequence[str], seed: int) -> list[Mutant]:
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
        old = vars(importlib.import_module(mutant["path"][:-3].replace("/", ".")))
        body = [n for n in tree.body if n.lineno <= mutant["lines"][0] <= (n.end_lineno or 0)]
        exec(compile(ast.Module(body, []), path, "exec"), now := old.copy())
        for name in owner[1:].strip("()").split(", "):
            value = old[name]
            for other in list(sys.modules.values()):
                if vars(other).get(name) is value:
                    setattr(other, name, now[name])
        return True
    found = [key for key in before if key[0] == owner and before[key] != after.get(key)]
    if not found or after[found[0]].co_freevars != before[found[0]].co_freevars:
        return False
    gc.unfreeze()  # tests/conftest.py hides what it has collected
    for each in gc.get_objects():
        if isinstance(each, types.FunctionType) and each.__code__ == before[found[0]]:
            each.__code__ = after[found[0]]
    return True
