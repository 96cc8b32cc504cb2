"""Allocators, schedulers, predictors, routers, connectors, controllers and rules of the memory
controller of one's own, each a class in a named file; what sweeps add stands in
`sweeps.plan.plugged`.

Every class in the file with all that its base asks for is registered under the name that it states
(`PluginKind.name`). Only files that are named are loaded, and modules that an installed package
names in the entry points `bankwise.plugins`: a description never loads code.
"""

from __future__ import annotations

import hashlib
import sys
import traceback
from collections.abc import Container, MutableMapping
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from hwmodel.description.description import DescriptionError
from hwmodel.specs.controller_rule import (
    INSTALLED,
    MODULES,
    ControllerRule,
    announce,
    module_file,
)
from policies.allocators.allocator import Allocator, PolicyOptions
from policies.allocators.registry import POLICIES
from policies.engines.engine_options import EngineOptions
from policies.engines.scheduler import Scheduler
from policies.engines.schedulers import SCHEDULERS
from policies.predictors.predictor import PredictorSpec
from policies.predictors.predictors import PREDICTORS
from policies.routers.router import Router
from policies.routers.routers import ROUTERS
from policies.serving.controllers import CONTROLLERS
from policies.serving.moving_options import ControllerOptions
from policies.serving.node_controller import Controller
from policies.transfers.connectors import CONNECTORS
from policies.transfers.kv_connector import ConnectorOptions, KvConnector


class PluginKind(NamedTuple):
    """What a file may define."""

    base: type
    known: MutableMapping[str, Any]
    """Where those that there are stand, by name."""
    name: str
    """The attribute that states the name; of a field of options, `Options.name`."""
    overrides: tuple[str, ...] = ()
    """Methods of the base, beside its abstract ones, that a class has to override; `a or b`: one of
    these."""
    options: type | None = None
    """What its `Options` have to be."""

    def lacks(self, cls: Any) -> list[str]:
        """What a class would need and does not have."""
        lacking = sorted(getattr(cls, "__abstractmethods__", ()))
        lacking += [
            each for each in self.overrides
            if all(getattr(cls, name) is getattr(self.base, name) for name in each.split(" or "))
        ]  # fmt: skip
        options, own = self.options, getattr(cls, "Options", None)
        if options and own is not None and not (isinstance(own, type) and issubclass(own, options)):
            lacking.append(f"Options that are {options.__name__}")
        head = self.name.split(".")[0]
        fields = getattr(cls, "model_fields", {})
        return lacking if hasattr(cls, head) or head in fields else [*lacking, head]

    def stated(self, cls: Any) -> Any:
        """The name that a class states."""
        *options, field = self.name.split(".")
        spec = getattr(cls, options[0]) if options else cls
        fields = getattr(spec, "model_fields", {})
        return fields[field].default if field in fields else getattr(spec, field, None)


KINDS: dict[str, PluginKind] = {
    "policy": PluginKind(Allocator, POLICIES, "Options.name", options=PolicyOptions),
    "scheduler": PluginKind(Scheduler, SCHEDULERS, "Options.name", options=EngineOptions),
    "predictor": PluginKind(PredictorSpec, PREDICTORS, "kind", ("predictions",)),
    "placement": PluginKind(Router, ROUTERS, "name"),
    "connector": PluginKind(KvConnector, CONNECTORS, "name", ("matched",), ConnectorOptions),
    "controller": PluginKind(
        Controller, CONTROLLERS, "name", ("decide or plan",), ControllerOptions
    ),
    "rule": PluginKind(ControllerRule, {}, "name", ("lower",)),
}
"""By a word for it. A kind is added by a line here."""


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


def load_installed(say: bool) -> None:
    """Register what installed packages bring, as `--plugin` would. Called as this module is first
    loaded, in each process, and with `say` once all kinds are known: one that is at fault is then
    left out, and said."""
    loaded = {plugin.file for plugin in LOADED.values()}
    for point in entry_points(group=INSTALLED):
        try:
            if str(file := module_file(point)) not in loaded:
                load_plugin(file)
        except DescriptionError as error:
            if say:
                package = "" if point.dist is None else f" of {point.dist.name}"
                print(f"plug-in {point.name}{package} is left out: {error}", file=sys.stderr)


def register(file: str, text: str) -> Plugin:
    """The same of a text that stood in `file`. Raises DescriptionError."""
    announce([(file, text)])  # raises where it is too late for a rule
    name = Path(file).name
    before = LOADED.get(name)
    if before is not None and before.text == text:
        return before
    if before is not None and before.file != file:
        raise DescriptionError(f"a second plug-in of this name, beside {before.file}", file)
    module = MODULES.get(file) or _executed(file, text)
    found = [(kind, stated, cls) for cls in _classes(module, file)
             for kind, stated in [_named(cls, file)]]  # fmt: skip
    own = set() if before is None else set(before.defined)
    for at, (kind, stated, cls) in enumerate(found):
        if stated in KINDS[kind].known and (kind, stated) not in own:
            raise DescriptionError(f"{kind} {stated!r} is there already; name it otherwise", file)
        if alike := [other for *same, other in found[:at] if same == [kind, stated]]:
            raise DescriptionError(
                f"{kind} {stated!r} is both {alike[0].__name__} and {cls.__name__}; name one "
                "otherwise", file,
            )  # fmt: skip
    for kind, stated in own:
        del KINDS[kind].known[stated]
    for kind, stated, cls in found:
        KINDS[kind].known[stated] = cls
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
        step = last_step(error, {file})
        raise DescriptionError(
            f"{type(error).__name__}: {error}", file, step and step.lineno
        ) from None
    finally:
        del sys.modules[module.__name__]
        if before is not None:
            sys.modules[module.__name__] = before
    return module


def _classes(module: ModuleType, file: str) -> list[type]:
    """What the file defines. Raises DescriptionError where that is nothing, or not whole."""
    bases = tuple(kind.base for kind in KINDS.values())
    own = [cls for cls in vars(module).values() if isinstance(cls, type)
           and cls.__module__ == module.__name__ and issubclass(cls, bases)]  # fmt: skip
    lacks = {cls: KINDS[_kind_of(cls)].lacks(cls) for cls in own}
    if all(lacks.values()):
        names = ", ".join(base.__name__ for base in bases)
        said = "; ".join(f"{cls.__name__} lacks {', '.join(each)}" for cls, each in lacks.items())
        raise DescriptionError(said or f"defines no subclass of any of {names}", file)
    return [cls for cls in own if not lacks[cls]]


def _kind_of(cls: type) -> str:
    return next(word for word, kind in KINDS.items() if issubclass(cls, kind.base))


def _named(cls: type, file: str) -> tuple[str, str]:
    """Its kind and the name that it states. Raises DescriptionError."""
    word = _kind_of(cls)
    stated = KINDS[word].stated(cls)
    if not isinstance(stated, str) or not stated:
        raise DescriptionError(f"{cls.__name__}.{KINDS[word].name} states no name", file)
    return word, stated


def last_step(error: BaseException, files: Container[str]) -> traceback.FrameSummary | None:
    """The last place in one of these files on the way to where an error was raised."""
    steps = reversed(traceback.extract_tb(error.__traceback__))
    return next((step for step in steps if step.filename in files), None)


def recorded() -> dict[str, dict[str, str]]:
    """What a run records of the files that are loaded, by file name."""
    return {name: {"sha256": plugin.sha256} for name, plugin in LOADED.items()}


def require(wanted: Any, file: str) -> None:
    """Raise DescriptionError where a description was made with plug-ins, `wanted`, that are not
    loaded."""
    missing = [name for name in wanted or () if name not in LOADED]
    if missing:
        raise DescriptionError(f"made with a plug-in: name it with --plugin {missing[0]}", file)


load_installed(say=False)
