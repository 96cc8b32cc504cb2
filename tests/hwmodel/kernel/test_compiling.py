"""Does Numba compile what is not ours as it would alone, and what threads ask for, once?"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numba
from numba import types
from numba.core.errors import RequireLiteralValue
from numba.extending import intrinsic

import hwmodel.kernel.compiling  # noqa: F401  # changes how Numba looks signatures up
from hwmodel.kernel.jit import once


@intrinsic  # type: ignore[untyped-decorator]
def dimensions(_context: Any, number: Any) -> Any:
    """As `numba.cuda.grid`: it asks for the constant itself."""
    if not isinstance(number, types.IntegerLiteral):
        raise RequireLiteralValue(number)
    value = number.literal_value

    def made(context: Any, _builder: Any, _signature: Any, _arguments: Any) -> Any:
        return context.get_constant(types.int64, value)

    return types.int64(number), made


@numba.njit  # type: ignore[untyped-decorator]
def asks() -> int:
    return dimensions(3) + abs(-2)


def test_a_function_may_ask_for_a_constant_itself() -> None:
    assert asks() == 5


def test_what_threads_ask_for_at_once_is_made_once() -> None:
    made = []

    @once
    def make(number: int) -> int:
        time.sleep(0.05)
        made.append(number)
        return number

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(make, [1, 1, 2, 1])) == [1, 1, 2, 1]
    assert sorted(made) == [1, 2]
