"""Timing expressions such as `RL + nBL + 2 - WL`: read with Python's own parser, never executed."""

from __future__ import annotations

import ast
import operator
import threading
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import lru_cache
from math import ceil, floor

_BINARY: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_CALLS: dict[str, Callable[..., Fraction]] = {
    "max": lambda *values: max(values),
    "min": lambda *values: min(values),
    "ceil": lambda value: Fraction(ceil(value)),
    "floor": lambda value: Fraction(floor(value)),
}


_ONE_AT_A_TIME = threading.Lock()
"""CPython 3.11 fails now and then where two threads parse at once (python/cpython#106905)."""


MAX_LENGTH = 300
"""Characters of an expression; those that ship have 122 at most."""


@lru_cache(maxsize=4096)
def _parse(text: str) -> ast.expr:
    if len(text) > MAX_LENGTH:
        raise ValueError(f"an expression has at most {MAX_LENGTH} characters; got {len(text):,}")
    try:
        with _ONE_AT_A_TIME:
            return ast.parse(text.strip(), mode="eval").body
    except SyntaxError:
        raise ValueError(f"not an expression over timing names: {text!r}") from None


@lru_cache(maxsize=4096)
def names_in(text: str) -> tuple[str, ...]:
    """Timing names that `text` uses. Raises ValueError if it is not an expression."""
    names: list[str] = []

    def visit(node: ast.expr) -> None:
        if isinstance(node, ast.Name):
            names.append(node.id)
        elif isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
            visit(node.left)
            visit(node.right)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
            if node.func.id not in _CALLS or not node.args:
                raise ValueError(f"unknown function in {text!r}; known: {', '.join(_CALLS)}")
            for argument in node.args:
                visit(argument)
        elif not (isinstance(node, ast.Constant) and type(node.value) in (int, float)):
            raise ValueError(f"not an expression over timing names: {text!r}")

    visit(_parse(text))
    return tuple(names)


@lru_cache(maxsize=4096)
def _number(text: str) -> Fraction:
    return Fraction(text)


def evaluate(
    text: str, values: Mapping[str, Fraction], exact: Mapping[str, Fraction] | None = None
) -> Fraction:
    """Value of `text` in clocks. `values`: the timings, rounded up to ticks. `exact`: the same not
    rounded, which names inside `ceil()` and `floor()` stand for; without it they are `values`.
    Raises ValueError, KeyError for an unknown name, ZeroDivisionError."""

    def visit(node: ast.expr, known: Mapping[str, Fraction]) -> Fraction:
        if isinstance(node, ast.Name):
            return known[node.id]
        if isinstance(node, ast.Constant):
            return _number(str(node.value))
        if isinstance(node, ast.BinOp):
            return _BINARY[type(node.op)](visit(node.left, known), visit(node.right, known))
        assert isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        if exact is not None and node.func.id in ("ceil", "floor"):
            known = exact
        return _CALLS[node.func.id](*(visit(argument, known) for argument in node.args))

    names_in(text)
    return visit(_parse(text), values)
