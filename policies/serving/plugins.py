"""Allocators, predictors and routers of one's own, each a class in a Python file that is named.

Every class in the file with all that its base asks for is registered under the name that it states:
an `Allocator` by `name` of its `Options`, a `PredictorSpec` by `kind`, a `Router` by `name`. Only
files that are named are loaded: a description never loads code.
"""

from __future__ import annotations

import hashlib
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from hwmodel.description.description import DescriptionError
from policies.allocators.allocator import Allocator
from policies.allocators.registry import POLICIES
from policies.predictors.predictor import PREDICTORS, PredictorSpec
from policies.routers.router import Router
from policies.routers.routers import ROUTERS

KINDS: dict[str, tuple[type, dict[str, Any]]] = {
    "policy": (Allocator, POLICIES), "predictor": (PredictorSpec, PREDICTORS),
    "placement": (Router, ROUTERS),
}  # fmt: skip
"""What a file may define: a word for it, its base, and where those that there are stand."""


class Plugin(NamedTuple):
    """A file that is loaded: its text, and what it defines as (kind, name)."""

    file: str
    text: str
    defined: tuple[tuple[str, str], ...]

    @property
    def sha256(self) -> str:
        """Of the text."""
        return hashlib.sha256(self.text.encode()).hexdigest()


LOADED: dict[str, Plugin] = {}
"""By file name, as runs record them."""


def load_plugin(path: str | Path) -> Plugin:
    """Read a file and register what it defines; one that has changed replaces what it was. Raises
    DescriptionError, with the line where there is one."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise DescriptionError(f"cannot be read: {error.strerror}", path) from None
    except ValueError as error:
        raise DescriptionError(f"not a Python file: {error}", path) from None
    return register(str(path), text)


def register(file: str, text: str) -> Plugin:
    """The same of a text that stood in `file`. Raises DescriptionError."""
    name = Path(file).name
    before = LOADED.get(name)
    if before is not None and before.text == text:
        return before
    if before is not None and before.file != file:
        raise DescriptionError(f"a second plug-in of this name, beside {before.file}", file)
    module = _executed(file, text)
    found = [(kind, stated, cls) for cls in _classes(module, file)
             for kind, stated in [_named(cls, file)]]  # fmt: skip
    own = set() if before is None else set(before.defined)
    for kind, stated, _ in found:
        if stated in KINDS[kind][1] and (kind, stated) not in own:
            raise DescriptionError(f"{kind} {stated!r} is there already; name it otherwise", file)
    for kind, stated in own:
        del KINDS[kind][1][stated]
    for kind, stated, cls in found:
        KINDS[kind][1][stated] = cls
    sys.modules[module.__name__] = module
    LOADED[name] = Plugin(file, text, tuple((kind, stated) for kind, stated, _ in found))
    return LOADED[name]


def _executed(file: str, text: str) -> ModuleType:
    """The file as a module. Raises DescriptionError for whatever it raises."""
    module = ModuleType(f"bankwise_plugin_{Path(file).stem}")
    module.__file__ = file
    before = sys.modules.get(module.__name__)
    sys.modules[module.__name__] = module  # annotations are looked up there
    try:
        exec(compile(text, file, "exec"), module.__dict__)
    except SyntaxError as error:
        raise DescriptionError(f"not Python: {error.msg}", file, error.lineno) from None
    except (Exception, SystemExit) as error:
        steps = traceback.extract_tb(error.__traceback__)
        line = next((step.lineno for step in reversed(steps) if step.filename == file), None)
        raise DescriptionError(f"{type(error).__name__}: {error}", file, line) from None
    finally:
        del sys.modules[module.__name__]
        if before is not None:
            sys.modules[module.__name__] = before
    return module


def _classes(module: ModuleType, file: str) -> list[type]:
    """What the file defines. Raises DescriptionError where that is nothing, or not whole."""
    bases = tuple(base for base, _ in KINDS.values())
    own = [cls for cls in vars(module).values() if isinstance(cls, type)
           and cls.__module__ == module.__name__ and issubclass(cls, bases)]  # fmt: skip
    lacks = {cls: _lacks(cls) for cls in own}
    if all(lacks.values()):
        names = " or ".join(base.__name__ for base in bases)
        said = "; ".join(f"{cls.__name__} lacks {', '.join(each)}" for cls, each in lacks.items())
        raise DescriptionError(said or f"defines no class that is a {names}", file)
    return [cls for cls in own if not lacks[cls]]


def _lacks(cls: Any) -> list[str]:
    """What its base asks for and it does not have."""
    if issubclass(cls, PredictorSpec):
        own = cls.predictions is not PredictorSpec.predictions
        return [] if own else ["predictions"]
    lacking = sorted(getattr(cls, "__abstractmethods__", ()))
    needed = "Options" if issubclass(cls, Allocator) else "name"
    return lacking if hasattr(cls, needed) else [*lacking, needed]


def _named(cls: Any, file: str) -> tuple[str, str]:
    """Its kind and the name that it states. Raises DescriptionError."""
    kind = next(word for word, (base, _) in KINDS.items() if issubclass(cls, base))
    if kind == "placement":
        where, stated = "name", cls.name
    else:
        where, spec = ("Options.name", cls.Options) if kind == "policy" else ("kind", cls)
        stated = spec.model_fields[where.split(".")[-1]].default
    if not isinstance(stated, str) or not stated:
        raise DescriptionError(f"{cls.__name__}.{where} states no name", file)
    return kind, stated


def recorded() -> dict[str, dict[str, str]]:
    """What a run records of the files that are loaded, by file name."""
    return {name: {"sha256": plugin.sha256} for name, plugin in LOADED.items()}


def require(wanted: Any, file: str) -> None:
    """Raise DescriptionError where a description was made with plug-ins, `wanted`, that are not
    loaded."""
    missing = [name for name in wanted or () if name not in LOADED]
    if missing:
        raise DescriptionError(f"made with a plug-in: name it with --plugin {missing[0]}", file)
