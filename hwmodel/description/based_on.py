"""`based_on: NAME`: what a description leaves out comes from another one of its kind.

A memory or a link takes everything that it does not say itself; values keep their sources and
places. Mappings are merged key by key, `null` leaves out what the base has, anything else is
replaced as a whole. `constraint_changes` edits the constraints row by row.

An accelerator borrows what no data sheet states, as assumed values: interleave, hash,
controller, derate, how DMA engines work, how attention is spread, efficiencies and kernels, and
what a cache that it states collects; with the same memory, set alike, also address map and
plausible variants, and with `memory: given` nothing of a simulated one. `null` leaves out here too.
Never borrowed are facts that every data sheet has: memory, channels, capacity, engines, peaks,
links.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hwmodel.description.description import (
    DescriptionError,
    Document,
    KeyPath,
    Provenance,
    nearest,
    nearest_name,
)
from hwmodel.description.library import find
from hwmodel.description.yaml_reader import load, refuse_sources

_NAME = re.compile(r"[A-Za-z_]\w*")
_OWN = ("kind", "name", "summary")
"""Keys of a memory or a link that are never inherited."""
_PROSE = (*_OWN, "sources")
"""Keys of a memory whose texts are for readers: a timing that they name is not read."""
_BORROWED: tuple[KeyPath, ...] = (
    ("interleave",), ("channel_hash",), ("controller", "*"), ("work", "*"), ("derate",),
    *(("dma", key) for key in ("window", "request", "minimum_access", "descriptor_cost", "strided",
                               "gather", "port_bandwidth", "request_latency", "response_latency")),
    *(("compute", key) for key in ("prefill_efficiency", "decode_efficiency", "overlap")),
    ("kernels", "*"),
    ("memory_side_cache", "policy"), ("memory_side_cache", "collected"),
)  # fmt: skip
_STATED = ("memory_side_cache",)
"""Groups that are not borrowed as a whole: whether there is one is a fact."""
_WHOLE = ("kernels",)
"""Groups that are borrowed as a whole or not at all: a class and what differs from it."""


def complete(document: Document, derived: tuple[Path, ...] = ()) -> None:
    """Fill a memory, a link or an accelerator from its base, in place; others are left alone.

    `derived`: files that are based on this one, to find circles. Raises DescriptionError where
    `based_on` names no description of the same kind, or leads back to one of `derived`.
    """
    kind = document.data.get("kind")
    if kind == "memory":
        base = _base(document, "memories", derived)
        added = _added(document, base)
        if base is not None:
            _merge(document, base, ())
        _change_rows(document)
        if base is not None:
            _refuse_unread(document, added)
            del document.data["based_on"]
    elif kind == "link" and (base := _base(document, "links", derived)) is not None:
        _merge(document, base, ())
        del document.data["based_on"]
    elif kind == "accelerator" and (base := _base(document, "accelerators", derived)) is not None:
        _borrow(document, base)


def _base(document: Document, folder: str, derived: tuple[Path, ...]) -> Document | None:
    """The completed description that this one is based on, if it is."""
    name, kind = document.data.get("based_on"), document.data["kind"]
    if name is None:
        return None
    if not isinstance(name, str):
        raise document.error(f"expected a name or a path; got {name!r}", ("based_on",))
    here = (*derived, Path(document.file).resolve())
    try:
        file = find(folder, name, document.file)
    except DescriptionError as error:
        raise document.error(error.message, ("based_on",)) from None
    if file.resolve() in here:
        raise document.error(f"{name} is in turn based on this {kind}", ("based_on",))
    base = load(file)
    if base.data.get("kind") != kind:
        raise document.error(f"{name} does not describe the same kind, {kind}", ("based_on",))
    complete(base, here)
    own, theirs = document.data.get("sources"), base.data.get("sources")
    if isinstance(own, dict) and isinstance(theirs, dict):
        refuse_sources(document, [*own, *theirs])
    return base


def _merge(memory: Document, base: Document, path: KeyPath) -> None:
    """Complete the mapping at `path`, in the base's order of keys."""
    ours, theirs = memory.get(path), base.get(path)
    stated = dict(ours)
    ours.clear()
    for key, inherited in theirs.items():
        place = (*path, key)
        if key not in stated:
            if path or key not in _OWN:
                memory.graft(place, base, place)
        elif stated[key] is not None:
            ours[key] = stated[key]
            if isinstance(stated[key], dict) and isinstance(inherited, dict):
                _merge(memory, base, place)
    for key in [key for key in stated if key not in theirs]:
        if stated[key] is None:
            hint = nearest(key, list(theirs))
            raise memory.error(f"the base has no such key to leave out; {hint}", (*path, key))
        ours[key] = stated[key]


def _added(memory: Document, base: Document | None) -> list[str]:
    """The timings of a memory that its base does not have."""
    stated = memory.data.get("timing")
    known = base.data.get("timing", {}) if base is not None else {}
    return [name for name in stated if name not in known] if isinstance(stated, dict) else []


def _refuse_unread(memory: Document, timings: list[str]) -> None:
    """Raises DescriptionError for one of these that nothing in the memory names, as a timing that
    is misspelt would leave the base's as it is."""
    if not timings:
        return
    read = {key: value for key, value in memory.data.items() if key not in _PROSE}
    named = set(_NAME.findall(" ".join(_texts(read))))
    for name in timings:
        if name not in named:
            others = [other for other in memory.data["timing"] if other not in timings]
            near = nearest_name(name, others)
            hint = f"; did you mean {near!r}?" if near else ""
            raise memory.error(
                f"the base has no such timing, and no row of constraint_changes reads it{hint}",
                ("timing", name),
            )


def _texts(value: Any) -> Iterator[str]:
    """Every text in a description, without keys."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _texts(each)


def _change_rows(memory: Document) -> None:
    """Apply `constraint_changes`: a row replaces the one of the same scope, commands and window,
    or removes it (`delay: null`); where there is none it is added at the end."""
    changes = memory.data.get("constraint_changes")
    rows = memory.data.get("constraints")
    if changes is None:
        return
    if "based_on" not in memory.data:
        raise memory.error("stands only beside based_on", ("constraint_changes",))
    if not isinstance(changes, list) or not isinstance(rows, list):
        raise memory.error("expected a list of rows", ("constraint_changes",))
    places: list[KeyPath] = [("constraints", i) for i in range(len(rows))]
    for i, change in enumerate(changes):
        place: KeyPath = ("constraint_changes", i)
        known = [_constrained(memory.get(there)) for there in places]
        at = known.index(key) if (key := _constrained(change)) in known else len(known)
        removed = isinstance(change, dict) and change.get("delay", "") is None
        if removed and at == len(known):
            raise memory.error("the base has no such row to leave out", place)
        places[at : at + 1] = [] if removed else [place]
    changed = Document({"constraints": {}}, memory.file)
    for i, place in enumerate(places):
        changed.graft(("constraints", i), memory, place)
    changed.data["constraints"] = list(changed.data["constraints"].values())
    changed.marks["constraints",] = memory.mark(("constraints",))
    memory.graft(("constraints",), changed, ("constraints",))
    del memory.data["constraint_changes"]


def _constrained(row: Any) -> object:
    """The identity of a row: its scope, its commands in any order, its window."""
    if not isinstance(row, dict):
        return row
    after, before = (
        sorted(map(str, side)) if isinstance(side, list) else [side]
        for side in (row.get("after"), row.get("before"))
    )
    return row.get("scope"), after, before, row.get("window")


def _borrow(accelerator: Document, base: Document) -> None:
    """Put what is missing in its place, as assumed."""
    same_memory = accelerator.data.get("memory") == base.data.get("memory")
    if same_memory and "plausible" in base.data and "plausible" not in accelerator.data:
        accelerator.graft(("plausible",), base, ("plausible",))
    given = accelerator.data.get("memory") == "given"
    own = set(accelerator.data)
    mapped = same_memory and accelerator.data.get("memory_set") == base.data.get("memory_set")
    for path in [*borrowed(base), *([("address_map",)] if mapped else [])]:
        if given and path[0] not in ("work", "compute", "kernels"):
            continue
        if path[0] in _WHOLE and path[0] in own:
            continue
        group = accelerator.get(path[:1])
        fits = len(path) == 1 or isinstance(group, dict)
        fits = fits or (group is None and path[0] not in _STATED)
        holder = accelerator.get(path[:-1])
        if isinstance(holder, dict) and path[-1] in holder:
            if holder[path[-1]] is None:
                del holder[path[-1]]
        elif fits and base.get(path) is not None:
            accelerator.put(path, base.get(path), base.mark(path))
            accelerator.provenance[path] = Provenance(
                base.get(path), ("assumed",), None, f"as {base.data.get('name', base.file)}"
            )


def borrowed(base: Document) -> list[KeyPath]:
    """What an accelerator that is based on this one borrows, where it does not say it itself."""
    found: list[KeyPath] = []
    for path in _BORROWED:
        group = base.get(path[:1])
        if path[-1] != "*":
            found.append(path)
        elif isinstance(group, dict):
            found += [(path[0], key) for key in group]
    return found
