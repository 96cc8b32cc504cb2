"""Does Numba compile what is not ours as it would alone?"""

from __future__ import annotations

from typing import Any

import numba
from numba import types
from numba.core.errors import RequireLiteralValue
from numba.extending import intrinsic

import hwmodel.kernel.compiling  # noqa: F401  # changes how Numba looks signatures up


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
