"""The shipped descriptions: their folders, names and files."""

from __future__ import annotations

import re
from pathlib import Path

from hwmodel.description.description import DescriptionError, nearest

FOLDERS = (
    "memories", "accelerators", "kernels", "links", "models", "formats", "workloads", "predictors",
    "measurements", "servers", "transfers", "sweeps", "studies",
)  # fmt: skip
_PACKAGED = Path(__file__).parents[1] / "library"
LIBRARY = _PACKAGED if _PACKAGED.is_dir() else Path(__file__).parents[2] / "yaml"
"""The shipped descriptions: `hwmodel/library` in an installed wheel, `yaml/` in a clone."""
_MOST = 5
"""Names of a hint."""
RESULTS = "docs/release"
"""In a clone: sweeps of published results, each by its file."""


def names(kind: str) -> list[str]:
    """The shipped descriptions of one kind (a folder of the library), sorted."""
    return sorted(file.stem for file in (LIBRARY / kind).glob("*.yaml"))


def find(kind: str, name_or_path: str, relative_to: str | Path | None = None) -> Path:
    """The file of a shipped description (`lpddr5-6400-x16`) or of the user's own (a path).

    A path is tried as it stands, then beside the file that names it (`relative_to`). Raises
    DescriptionError with the nearest shipped name.
    """
    looks_like_path = "/" in name_or_path or name_or_path.endswith((".yaml", ".yml"))
    if not looks_like_path:
        shipped = LIBRARY / kind / f"{name_or_path}.yaml"
        if _is_file(shipped):
            return shipped
    candidates = [Path(name_or_path)]
    if relative_to is not None:
        candidates.append(Path(relative_to).parent / name_or_path)
    for candidate in candidates:
        if _is_file(candidate) and (looks_like_path or candidate.suffix):
            return candidate
    if looks_like_path:
        raise DescriptionError("no such file", name_or_path)
    hint = elsewhere(name_or_path) or _described(kind, name_or_path)
    hint = hint or nearest(name_or_path, names(kind))
    raise DescriptionError(f"no shipped {_singular(kind)} {name_or_path!r}; {hint}")


def _described(kind: str, word: str) -> str:
    """Those whose summary has the word, which no name begins with: w4a16 says that it is AWQ's."""
    if any(name.startswith(word) for name in names(kind)):
        return ""
    word = re.sub(r"(\d)-?(bits?)$", r"\1 bits", word.lower())
    found = [
        file.stem
        for file in sorted((LIBRARY / kind).glob("*.yaml"))
        for line in file.read_text(encoding="utf-8").splitlines()
        if line.startswith("summary:") and re.search(rf"\b{re.escape(word)}\b", line.lower())
    ]
    return f"so described: {', '.join(found[:_MOST])}" if found else ""


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name that is too long
        return False


def elsewhere(name: str) -> str:
    """What a shipped name is, in words, or the file of a published result's sweep, in a clone;
    nothing where there is no such one."""
    kinds = [_singular(kind) for kind in FOLDERS if name in names(kind)]
    if kinds:
        return f"it is a shipped {' and '.join(kinds)}"
    return f"it is {RESULTS}/{name}.yaml" if _is_file(_results() / f"{name}.yaml") else ""


def results() -> list[Path]:
    """Files of the sweeps behind published results, which do not ship; none in a wheel."""
    return sorted(_results().glob("*.yaml"))


def _results() -> Path:
    return LIBRARY.parent / RESULTS


def _singular(kind: str) -> str:
    return kind.removesuffix("ies") + "y" if kind.endswith("ies") else kind.removesuffix("s")
