"""Where compiled kernels are kept: on disk, for each contents of their sources.

In the user's cache; where that cannot be written, among temporary files of the user alone; where
nothing can, they are compiled in every process. A wheel may carry kernels for a common processor
(`bankwise new kernels --portable DIR`), which are used until those for this one are compiled.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

import numba
from llvmlite import binding
from numba.core import caching
from numba.core.dispatcher import Dispatcher

from hwmodel.specs.controller_rule import CHANGED, TEXTS

PORTABLE_CPU = "x86-64-v3"
"""The processor for which a wheel carries kernels."""
_NEEDS = ("avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe")
"""What it has, as LLVM names it."""
_HERE = Path(__file__).parent
CARRIED = _HERE.parent / "kernels"
"""Kernels that a wheel carries."""
_BESIDE = _HERE.parent / "specs" / "commands.py"
"""What the kernels use from outside this package: the numbering of commands."""
NATIVE = "native"
"""A file beside kernels that are compiled for this machine."""
_IMPORTS = re.compile(r"^from ((?:hwmodel|policies)\.[\w.]+) import", re.MULTILINE)
_CONFIG: Any = numba.config


def source_digest() -> str:
    """A hash of the kernels' sources and of what compiles them: Numba's cache does not notice a
    change in another file that a kernel calls (numba/numba#6061)."""
    digest = hashlib.sha256(numba.__version__.encode())
    for file in [*sorted(_HERE.rglob("*.py")), _BESIDE]:
        digest.update(file.read_bytes())
    for text in TEXTS.values():  # rules of the controller of one's own
        digest.update(text.encode())
    return digest.hexdigest()[:16]


def _of_the_user() -> Path:
    """A directory among temporary files that nobody else may have written."""
    path = Path(tempfile.gettempdir()) / f"bankwise-{os.getuid()}"
    path.mkdir(mode=0o700, exist_ok=True)
    status = path.lstat()
    if status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise PermissionError(f"{path} may be of somebody else")
    return path


def _cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "bankwise"


def cache_directory() -> Path | None:
    """Where kernels of these sources are kept, with those that a wheel carries; None where no
    directory can be written."""
    name = f"kernels-{source_digest()}"
    for base in (_cache, _of_the_user):
        try:
            path = base() / name
            if not path.is_dir():
                _fill(path)
            tempfile.TemporaryFile(dir=path).close()
        except (OSError, RuntimeError):  # RuntimeError: there is no home
            continue
        return path
    return None


def _fill(path: Path) -> None:
    """Make the directory, with the kernels of a wheel in it, at once for all processes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = Path(tempfile.mkdtemp(dir=path.parent))
    carried = CARRIED / path.name
    if carried.is_dir():
        shutil.copytree(carried, new, dirs_exist_ok=True)
    try:
        new.rename(path)
    except OSError:  # another process was first
        shutil.rmtree(new)


def _is_portable(path: Path) -> bool:
    """Whether kernels of a wheel are there, fit this Python and processor, and none for this
    machine were compiled."""
    version = "py{}{}".format(*sys.version_info)
    carried = CARRIED / path.name
    if (path / NATIVE).exists() or not any(carried.rglob(f"*.{version}.*nbc")):
        return False
    has = binding.get_host_cpu_features()
    return all(has.get(need, False) for need in _NEEDS)


def use_portable() -> None:
    """Compile for PORTABLE_CPU in this process, before anything was."""
    _CONFIG.CPU_NAME, _CONFIG.CPU_FEATURES = PORTABLE_CPU, ""


def _add_files(names: dict[str, Any], files: dict[str, None]) -> None:
    """Add the files of parts of kernels that are known by these names, or in modules that are, of a
    package of this project."""
    for value in names.values():
        inner = vars(value) if isinstance(value, ModuleType) else {"": value}
        for each in inner.values():
            if not isinstance(each, Dispatcher):
                continue
            function: Any = each.py_func
            if (file := function.__code__.co_filename) not in files:
                files[file] = None
                _add_files(function.__globals__, files)


def _with_constants(files: list[str]) -> list[str]:
    """These files and those that they import from, whose numbers and types are compiled in."""
    found = dict.fromkeys(files)
    for file in files:
        for name in _IMPORTS.findall(Path(file).read_text(encoding="utf-8")):
            module = sys.modules.get(name)
            if module is not None and module.__file__:
                found[module.__file__] = None
    return list(found)


@functools.cache
def _digest(file: str) -> str:
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()


class KernelLocator(caching._SourceFileBackedLocatorMixin, caching._CacheLocator):
    """Tells Numba where a function of this project is kept, by its module: a wheel is not where its
    kernels were compiled. Of other packages than this the place has a hash of all sources: what was
    compiled of others cannot even be read where one of their types is no more."""

    def __init__(self, function: Any, file: str) -> None:
        self._py_file, self._lineno = file, function.__code__.co_firstlineno
        self._module, self._function = function.__module__, function

    @functools.cached_property
    def _digests(self) -> tuple[str, ...]:
        """Of its own file, of those of parts that it calls, and of what they import from."""
        files = {self._py_file: None}
        _add_files(self._function.__globals__, files)
        here = self._module.startswith(__package__)
        return tuple(map(_digest, list(files) if here else _with_constants(list(files))))

    def get_source_stamp(self) -> Any:
        return super().get_source_stamp(), *self._digests[1:]

    def get_cache_path(self) -> str:
        package = self._module.rpartition(".")[0]
        if not package.startswith(__package__):
            package += f"-{hashlib.sha256(''.join(self._digests).encode()).hexdigest()[:12]}"
        return str(Path(_CONFIG.CACHE_DIR) / package)

    @classmethod
    def from_function(cls, function: Any, file: str) -> Any:
        """None, for the next locator, of functions from elsewhere."""
        if function.__module__.partition(".")[0] not in ("hwmodel", "policies"):
            return None
        return super().from_function(function, file)


def keep_kernels() -> bool:
    """Tell Numba where to keep kernels; whether there is such a place. Numba's own variables of the
    environment stand above this."""
    if "NUMBA_CACHE_DIR" in os.environ:
        return True
    path = cache_directory()
    if path is None:
        return False
    if "NUMBA_CPU_NAME" not in os.environ and _is_portable(path):
        use_portable()
    own = f"{__name__}.{KernelLocator.__name__}"
    others = (kind.__name__ for kind in caching.CacheImpl._locator_classes)
    _CONFIG.CACHE_LOCATOR_CLASSES = ",".join([own, *others])
    _CONFIG.CACHE_DIR = str(path)
    return True


CHANGED.append(keep_kernels)
