"""A plug-in's mistakes at run time, named: which method returned or raised what.

The methods of a class that came from a file are wrapped once, as it is registered. Shipped classes
are never wrapped, so that they pay nothing.
"""

from __future__ import annotations

import reprlib
import traceback
from collections.abc import Callable, Collection, Mapping
from functools import wraps
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np
from pydantic import BaseModel

from hwmodel.description.description import DescriptionError
from policies.allocators.capabilities import Migration
from policies.engines.connector import Ending, Match
from policies.engines.scheduled_step import Step


class Expected(NamedTuple):
    """What a method has to return."""

    words: str
    holds: Callable[[Any], bool]


def _is_whole(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _whole(least: int) -> Expected:
    words = f"a whole number, {least} or more"
    return Expected(words, lambda value: _is_whole(value) and value >= least)


def _are_whole(value: Any) -> bool:
    found = np.asarray(value)
    return bool(np.issubdtype(found.dtype, np.integer) and (found >= 0).all())


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def _are_seconds(value: Any) -> bool:
    found = np.asarray(value)
    return bool(np.issubdtype(found.dtype, np.number) and found.ndim == 1 and (found >= 0).all())


def _all(value: Any, holds: Callable[[Any], bool]) -> bool:
    """Whether all members of what can be gone through more than once are so."""
    return isinstance(value, Collection) and all(holds(each) for each in value)


def _ends(value: Any) -> bool:
    pair = isinstance(value, tuple) and len(value) == 2
    return pair and _is_whole(value[0]) and value[1] in (Ending.FREE, Ending.FORGET)


def _is_told(value: Any) -> bool:
    """Whether a figure can be written down: numbers, names, and mappings of them."""
    if isinstance(value, Mapping):
        return all(isinstance(name, str) and _is_told(each) for name, each in value.items())
    if isinstance(value, list | tuple):
        return all(_is_told(each) for each in value)
    return (
        value is None
        or isinstance(value, str | bool)
        or (_is_number(value) and bool(np.isfinite(value)))
    )


def _are_figures(value: Any) -> bool:
    return isinstance(value, Mapping) and _is_told(value)


_FIGURES = Expected("a mapping of names to numbers, none of them nan or infinite", _are_figures)
_TRUTH = Expected("True or False", lambda value: isinstance(value, bool | np.bool_))
_SLOTS = _whole(0)
OF_ALLOCATORS: Mapping[str, Expected] = {
    "size": _whole(1),
    "needs": Expected("whole numbers, 0 or more", _are_whole),
    **dict.fromkeys(("reserve", "grow", "fits", "swap_in"), _TRUTH),
    **dict.fromkeys(
        ("release", "release_known", "discard", "swap_out", "cached", "headroom", "extent_count",
         "tag"), _SLOTS,
    ),
    "migrate": Expected(
        "a Migration or None", lambda value: value is None or isinstance(value, Migration)
    ),
}  # fmt: skip
"""Of methods of allocators (`Allocator`, `policies.allocators.capabilities`)."""
OF_SCHEDULERS: Mapping[str, Expected] = {
    "schedule": Expected("a Step", lambda value: isinstance(value, Step)),
    **dict.fromkeys(
        ("prefill_budget", "token_budget", "first_chunk", "first_stored", "findable"), _SLOTS
    ),
    **dict.fromkeys(("reserve", "reserve_loaded", "extend"), _TRUTH),
}
"""Of methods of schedulers (`Scheduler`)."""
OF_ROUTERS: Mapping[str, Expected] = {"choose": _SLOTS}
"""Of methods of routers; that the card is there is checked where it is used."""
_NUMBER = Expected("a number, or inf", lambda value: _is_number(value) and value == value)


def _matches(value: Any) -> bool:
    if value is None:
        return True
    ends = isinstance(value, Match) and _is_whole(value.start) and _is_whole(value.end)
    return bool(ends and 0 <= value.start <= value.end)


_REQUESTS = Expected("a list of requests", lambda value: _all(value, _is_whole))
OF_CONNECTORS: Mapping[str, Expected] = {
    "matched": Expected("a Match of whole tokens, 0 <= start <= end, or None", _matches),
    "finished": Expected("an Ending", lambda value: isinstance(value, Ending)),
    "released": Expected("pairs of a request and its Ending", lambda value: _all(value, _ends)),
    **dict.fromkeys(("passes_over", "goes_on"), _TRUTH),
    **dict.fromkeys(("arrived", "lost", "resumed", "yields"), _REQUESTS),
    "first": _whole(-1),
    "rounds": _whole(1),
    "due_s": _NUMBER,
    "stalls": Expected(
        "seconds of each step, or None", lambda value: value is None or _are_seconds(value)
    ),
    "figures": _FIGURES,
}
"""Of methods of connectors (`KvConnector`)."""
OF_CONTROLLERS: Mapping[str, Expected] = {
    "report": _FIGURES,
}
"""Of methods of controllers."""


def guard(cls: type, label: str, file: str, returns: Mapping[str, Expected]) -> None:
    """Wrap what `cls` and its bases of the same file define, so that a value other than `returns`
    expects, or an exception, is a DescriptionError with `label`, the method, and the value or the
    line of the file.

    Of a description (a pydantic model) what its bases do not have stays as it is: validators raise
    by design.
    """
    for each in cls.__mro__:
        if each.__module__ != cls.__module__:
            continue
        described = issubclass(each, BaseModel)
        for name, found in list(vars(each).items()):
            if described and not any(hasattr(base, name) for base in each.__bases__):
                continue
            method = found.fget if isinstance(found, property) else found
            if not isinstance(method, FunctionType) or hasattr(method, "guarded"):
                continue
            wrapped = _guarded(method, f"{label}: {name}", file, returns.get(name))
            if isinstance(found, property):
                setattr(each, name, property(wrapped, found.fset, found.fdel))
            else:
                setattr(each, name, wrapped)


def _guarded(
    method: Callable[..., Any], label: str, file: str, expected: Expected | None
) -> Callable[..., Any]:
    @wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            value = method(*args, **kwargs)
        except DescriptionError:
            raise
        except (Exception, SystemExit) as error:
            said = f"{label} raised {type(error).__name__}: {error}"
            raise DescriptionError(said, file, line_of(error, file)) from error
        if expected is None or expected.holds(value):
            return value
        said = f"{label} returned {_shown(value)}; expected {expected.words}"
        raise DescriptionError(said, file)

    call.guarded = True  # type: ignore[attr-defined]
    return call


def _shown(value: Any) -> str:
    """A value in a few words."""
    if isinstance(value, np.ndarray) and value.size:
        return f"an array of {value.dtype} that begins with {value.ravel()[0]}"
    return reprlib.repr(value)


def line_of(error: BaseException, file: str) -> int | None:
    """The last line of `file` on the way to where the error was raised."""
    steps = traceback.extract_tb(error.__traceback__)
    return next((step.lineno for step in reversed(steps) if step.filename == file), None)
