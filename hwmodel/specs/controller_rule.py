"""Rules of the memory controller of one's own: what a file has to define, and those that are there.

A rule is compiled into the kernels, so that its file is named before anything is simulated, and its
text is part of what compiled kernels are kept by. The auditor asks a rule what is illegal under it,
and knows nothing of its hooks.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

from hwmodel.description.description import DescriptionError


class ControllerRule:
    """What a memory controller does beyond what a description says, as a class of hooks.

        class Gap(ControllerRule):
            name, on = "activation_gap", "gap_from"
            constants = {"gap_from": "activations from which a bank opens slowly; 0: never"}

            @staticmethod
            def lower(memory): ...      # what a memory has of `constants` and `arrays`

            opened = staticmethod(inlined_function)

    Args:
        name: under `controller.rules`, beside its options.
        on: the scalar of `constants` that is 0 for memories without the rule.
        constants: scalars by name, with unit and meaning. arrays, state: shapes by name; `state` is
            a channel's, () for a scalar.
        first: gives the values of `state` that do not begin with 0.
        opened, closed, due, offer, done: hooks (`hwmodel.kernel.mechanism.Mechanism` says what each
            is given and may do), static, or None.
    """

    name: ClassVar[str]
    on: ClassVar[str]
    constants: ClassVar[Mapping[str, str]] = {}
    arrays: ClassVar[Mapping[str, tuple[int, ...]]] = {}
    state: ClassVar[Mapping[str, tuple[int, ...]]] = {}
    first: ClassVar[Any] = None
    opened: ClassVar[Any] = None
    closed: ClassVar[Any] = None
    due: ClassVar[Any] = None
    offer: ClassVar[Any] = None
    done: ClassVar[Any] = None

    @staticmethod
    def lower(memory: Any) -> Mapping[str, Any]:
        """What a memory has of `constants` and `arrays`, by name; nothing where it does not name
        the rule. Raises ValueError or DescriptionError."""
        raise NotImplementedError

    @staticmethod
    def audit(memory: Any, log: Any) -> Iterable[tuple[Any, str]]:
        """(places in the log, what is wrong there) of a command log of one channel under this rule;
        nothing by default. By the log alone, never by the hooks."""
        return ()


RULES: dict[str, type[ControllerRule]] = {}
"""By name."""
TEXTS: dict[str, str] = {}
"""Of the files that define them, by path."""
MODULES: dict[str, ModuleType] = {}
"""What these files are as modules, by path."""
CHANGED: list[Callable[[], Any]] = []
"""What is called when these texts have changed: where compiled kernels are kept hangs on them."""
INSTALLED = "bankwise.plugins"
"""The group of entry points of packages that bring plug-ins."""
_COMPOSED = "hwmodel.kernel.hooks"
"""Where the hooks of all rules become one; once it is loaded, that is settled."""


def announce(files: Iterable[tuple[str, str]]) -> None:
    """Take up the rules of files (path, text), before a kernel is loaded; others are left alone.
    Raises DescriptionError where kernels are there already, or a file is at fault."""
    new = _new(files)
    if new and _COMPOSED in sys.modules:
        file = next(iter(new))
        raise DescriptionError(
            "defines a rule of the controller, which is compiled into the kernels: name the file"
            " before anything is simulated, by --plugin or bankwise.plugin", file,
        )  # fmt: skip
    _take(new)


def settled() -> dict[str, type[ControllerRule]]:
    """All rules, with those of installed packages: what the kernels are made of, which are about to
    be. A package at fault is left to `policies.serving.plugins`, which says so."""
    for point in entry_points(group=INSTALLED):
        try:
            file = module_file(point)
            _take(_new([(str(file), file.read_text(encoding="utf-8"))]))
        except (DescriptionError, OSError, ValueError):
            continue
    return RULES


def module_file(point: EntryPoint) -> Path:
    """The file of the module that an entry point names. Raises DescriptionError."""
    try:
        found = find_spec(point.module)
    except ImportError as error:
        raise DescriptionError(str(error), point.value) from None
    if found is None or found.origin is None or found.submodule_search_locations is not None:
        raise DescriptionError("expected a module that is one file", point.value)
    return Path(found.origin)


def _new(files: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Those of files (path, text) that have a rule, and are not there."""
    return {file: text for file, text in files if TEXTS.get(file) != text and _has_rule(text)}


def _take(new: Mapping[str, str]) -> None:
    """Run files, and register their rules. Raises DescriptionError."""
    if not new:
        return
    TEXTS.update(new)  # before any file is run: it loads what compiles
    for changed in CHANGED:
        changed()
    for file, text in new.items():
        MODULES[file] = _executed(file, text)
        for rule in _rules_of(MODULES[file]):
            if not isinstance(getattr(rule, "name", None), str):
                raise DescriptionError(f"{rule.__name__}.name states no name", file)
            if rule.name in RULES:
                raise DescriptionError(f"rule {rule.name!r} is there already", file)
            RULES[rule.name] = rule


def read_and_announce(paths: Iterable[str | Path]) -> None:
    """As `announce`, of files; one that cannot be read is left to who loads it."""
    texts = []
    for path in paths:
        try:
            texts.append((str(path), Path(path).read_text(encoding="utf-8")))
        except (OSError, ValueError):
            continue
    announce(texts)


def _has_rule(text: str) -> bool:
    """Whether a class of the text is derived from `ControllerRule`."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return False  # who loads it says where
    bases = (base for each in ast.walk(tree) if isinstance(each, ast.ClassDef)
             for base in each.bases)  # fmt: skip
    return any(ast.unparse(base).split(".")[-1] == ControllerRule.__name__ for base in bases)


def _executed(file: str, text: str) -> ModuleType:
    """The file as a module. Raises DescriptionError for whatever it raises."""
    module = ModuleType(f"bankwise_plugin_{Path(file).stem}")
    module.__file__ = file
    sys.modules[module.__name__] = module  # annotations are looked up there
    try:
        exec(compile(text, file, "exec"), module.__dict__)
    except (Exception, SystemExit) as error:
        raise DescriptionError(f"{type(error).__name__}: {error}", file) from None
    return module


def _rules_of(module: ModuleType) -> Iterator[type[ControllerRule]]:
    for each in vars(module).values():
        own = isinstance(each, type) and each.__module__ == module.__name__
        if own and issubclass(each, ControllerRule):
            yield each
