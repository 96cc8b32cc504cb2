"""The memory that an accelerator names, and what its file says of it where an override names
another one."""

from __future__ import annotations

from contextlib import suppress

from hwmodel.description.description import DescriptionError, Document
from hwmodel.description.library import find
from hwmodel.description.yaml_reader import load
from hwmodel.specs.accelerator import GIVEN

_LONGEST_CHAIN = 20


def memory_of(accelerator: Document) -> Document:
    """The memory that it names. Raises DescriptionError."""
    try:
        return load(find("memories", str(accelerator.data.get("memory")), accelerator.file))
    except DescriptionError as error:
        raise error if error.file else accelerator.error(error.message, ("memory",)) from None


def swap_memory(accelerator: Document, name: str) -> None:
    """Leave out what the file says of the memory that it names and not of another: clock and
    timings; of one that is not derived from the same, also its die, ranks and address map."""
    data = accelerator.data
    own, other = _chain(str(data.get("memory")), accelerator), _chain(name, accelerator)
    stated = data.get("memory_set")
    if not isinstance(stated, dict) or data.get("memory") == GIVEN or not other:
        return  # the mistake is answered where it is read
    alike = bool(own) and own[-1].file == other[-1].file
    densities = next((d.data["densities"] for d in other if "densities" in d.data), None) or {}
    data["memory_set"] = {
        key: value
        for key, value in stated.items()
        if alike
        and not key.startswith(("clock.", "timing."))
        and (key != "density" or not isinstance(value, str) or value in densities)
    }
    if not alike:
        data.pop("address_map", None)


def _chain(name: str, beside: Document) -> list[Document]:
    """A memory and those that it is based on; empty where there is no such memory."""
    found: list[Document] = []
    with suppress(DescriptionError):
        while name and len(found) < _LONGEST_CHAIN:
            found.append(load(find("memories", name, (found or [beside])[-1].file)))
            name = str(found[-1].data.get("based_on") or "")
    return found
