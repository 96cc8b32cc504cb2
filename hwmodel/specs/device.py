"""A device: an accelerator with its memory, or one channel of a memory; overrides applied,
checked.

`--set` paths go to the memory where its description has the key (`timing.tRCD`,
`controller.refresh`, `address_map`), to the accelerator otherwise (`dma.window`, `interleave`,
`memory`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple

from hwmodel.description.based_on import complete
from hwmodel.description.description import (
    DescriptionError,
    Document,
    KeyPath,
    Mark,
    Mistakes,
    dotted,
    nearest,
)
from hwmodel.description.library import elsewhere, find, names
from hwmodel.description.yaml_reader import load, parse_assignment
from hwmodel.specs.accelerator import GIVEN, AcceleratorSpec, Paging
from hwmodel.specs.dma import Dma
from hwmodel.specs.further_memory import read_through
from hwmodel.specs.given_memory import GivenMemory
from hwmodel.specs.kernel_law import complete_kernels
from hwmodel.specs.memory_spec import MemorySpec
from hwmodel.specs.plausible import Override, Variant, take_variants
from hwmodel.specs.published import DESCRIBED_WITHIN
from hwmodel.specs.swapped_memory import memory_of, swap_memory

_MEMORY_KEYS = set(MemorySpec.model_fields) - {
    "kind", "name", "summary", "sources", "based_on", "plausible",
}  # fmt: skip
_FIRST = (("based_on",), ("constraint_changes",), ("density",))
"""Overrides of a memory that say what its description is, before others change it."""
_GROUPS = ("organisation", "timing", "energy", "controller")
"""Keys of a memory whose entries an accelerator may lay over one by one, nested or with a dot."""
_WRITE_QUEUE: KeyPath = ("controller", "write_queue")
_TIMING_ALIASES = {
    "tCL": "RL", "nCL": "RL", "tCWL": "WL", "nCWL": "WL", "tRPpb": "tRP", "nRPpb": "tRP",
    "tRCpb": "tRC", "nRCpb": "tRC", "tCCD": "tCCD_S", "nCCD": "tCCD_S", "tCCD_S": "tCCD",
    "nCCD_S": "tCCD",
}  # fmt: skip


@dataclass(frozen=True)
class Device:
    """A resolved device. `accelerator` is None where the device is one channel of a memory."""

    name: str
    described: MemorySpec | None
    """None where the accelerator's memory is given."""
    accelerator: AcceleratorSpec | None
    assumed: dict[str, str]
    """Dotted path -> value of every number whose source is `assumed`."""
    config: dict[str, Any]
    """The descriptions as resolved: {"accelerator": ..., "memory": ...}."""
    confidence: dict[str, str] = field(default_factory=dict)
    """Dotted path in the memory -> A to D, for every number that states how sure it is."""
    plausible: dict[str, Variant] = field(default_factory=dict)
    """Name -> what the device may be instead; no part of `config`."""
    memories: dict[str, Device] = field(default_factory=dict)
    """Memories beside its main one, each as if it were the main one."""
    described_as: Device | None = None
    """With all of these memories, where they are taken as one here."""

    @property
    def given(self) -> GivenMemory | None:
        """What is given instead of a memory to simulate."""
        return None if self.accelerator is None else self.accelerator.given

    @property
    def memory(self) -> MemorySpec:
        """Raises DescriptionError where the memory is given: there is nothing to simulate."""
        if self.described is None:
            raise DescriptionError(
                f"{self.name}: its memory's bandwidth is given, not simulated; no memory"
                " with timings of confidence C or better ships for it"
            )
        return self.described

    @property
    def dma(self) -> Dma:
        """The engines before a simulated memory. Raises DescriptionError where it is given."""
        assert self.accelerator is not None and self.memory
        return self.accelerator.dma

    def confidence_of(self, path: str) -> str | None:
        """The confidence of a number of the memory, or of the nearest group that states one."""
        parts = path.split(".")
        tried = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
        return next((self.confidence[name] for name in tried if name in self.confidence), None)

    @property
    def paging(self) -> Paging:
        """How its vendor's serving software keeps the KV cache."""
        return Paging() if self.accelerator is None else self.accelerator.paging

    @property
    def channels(self) -> int:
        return 1 if self.accelerator is None else self.accelerator.channels

    @property
    def peak_gbps(self) -> float:
        """Data-bus peak over all channels, GB/s (10^9 B/s)."""
        if self.given is not None:
            return self.given.bandwidth / 1e9
        return self.channels * self.memory.peak_gbps

    @property
    def derate(self) -> float:
        """Share of the simulated bandwidth that reaches the requesters."""
        return 1.0 if self.accelerator is None else self.accelerator.derate

    @property
    def capacity_bytes(self) -> int:
        if self.accelerator is None:
            return self.memory.data_bytes
        return self.accelerator.capacity

    @property
    def price_usd(self) -> float | None:
        """Dollars of the card with all its memories; None where one is not given."""
        if self.accelerator is None or (price := self.accelerator.price) is None:
            return None
        whole = price.card + price.gb * self.capacity_bytes / 1e9
        for each in self.accelerator.memories.values():
            if each.price_gb is None:
                return None
            whole += each.price_gb * each.capacity / 1e9
        return whole

    @property
    def draw_watts(self) -> float | None:
        """Watts of the card with all its memories; None where one is not given."""
        if self.accelerator is None or (draw := self.accelerator.draw) is None:
            return None
        whole = draw.card + draw.gbps * self.peak_gbps
        for name, each in self.accelerator.memories.items():
            if each.draw_gbps is None:
                return None
            whole += each.draw_gbps * self.memories[name].peak_gbps
        return whole

    @property
    def area_mm2(self) -> float | None:
        """Square millimetres of the card with all its memories; None where one is not given."""
        if self.accelerator is None or (area := self.accelerator.area) is None:
            return None
        whole = area.card + area.channel * self.channels
        for each in self.accelerator.memories.values():
            if each.area_channel is None:
                return None
            whole += each.area_channel * each.channels
        return whole

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the resolved descriptions."""
        return hashlib.sha256(json.dumps(self.config, sort_keys=True).encode()).hexdigest()


def device_names() -> list[str]:
    """Shipped accelerators, then shipped memories."""
    return names("accelerators") + names("memories")


def load_device(name_or_path: str, overrides: Iterable[str] = ()) -> Device:
    """Read, override and check a device. Raises DescriptionError.

    `name_or_path`: a shipped accelerator or memory, or a YAML file of either kind. As described,
    without overrides, the plausible variants of a file are checked as well, which takes as long as
    all of them; those of what ships were (`tests/hwmodel/specs/test_plausible.py`).
    """
    document, given, mistakes = load(_find_device(name_or_path)), _parsed(overrides), Mistakes()
    device = None
    with mistakes.met():
        device = _resolved(document, given)
    if device is not None and not given:
        with mistakes.met():
            _check_published(document, device)
    unchecked = not given and _is_path(name_or_path)
    if unchecked and not any(each.path.startswith("plausible") for each in mistakes):
        with mistakes.met():
            _check_variants(document.file, document.digest)
    mistakes.answer()
    assert device is not None
    return device


def _check_published(document: Document, device: Device) -> None:
    """That the device as described has the peak of its bus, and no more than twice its capacity:
    a die of 3/4 of a power of two may be described by the next larger one."""
    spec = device.accelerator
    if spec is None:
        return
    own = device.peak_gbps * 1e9
    if device.described is not None:
        o = device.described.organisation
        own *= o.wire_bytes / o.burst_bytes
    if spec.bus is not None and abs(own / spec.bus.computed - 1) > DESCRIBED_WITHIN:
        raise document.error(
            f"rate x width is {spec.bus.computed / 1e9:,.6g} GB/s, the device as described has"
            f" {device.peak_gbps:,.6g}; expected within {DESCRIBED_WITHIN:.1%}",
            ("bus",),
        )
    held = 0 if device.described is None else _held(spec, device.described)
    if 2 * spec.capacity <= held:
        raise document.error(
            f"{spec.capacity / 2**30:,.6g} GiB is no more than half of the {held / 2**30:,.6g} GiB"
            f" that {spec.channels} channels hold; take fewer channels, a smaller density, or fewer"
            " ranks",
            ("capacity",),
        )


def _held(accelerator: AcceleratorSpec, memory: MemorySpec) -> int:
    """Bytes: channels x density x ranks, without check bytes, in whole blocks of the interleave."""
    per_channel = memory.organisation.capacity_bytes
    if memory.controller.inline_ecc:
        per_channel = memory.data_bytes // accelerator.interleave * accelerator.interleave
    return accelerator.channels * per_channel


class Variants(NamedTuple):
    """The plausible variants of a device under overrides."""

    devices: dict[str, Device]
    left_out: dict[str, str]
    """Name -> why it does not go with the overrides."""


def load_variants(name_or_path: str, overrides: Iterable[str] = ()) -> Variants:
    """The plausible variants of a device, each laid over its overrides.

    Left out are those that vary what an override states, or that do not fit the device so
    overridden. Raises DescriptionError as `load_device` does.
    """
    file, given = _find_device(name_or_path), _parsed(overrides)
    variants = Variants({}, {})
    for name, variant in _resolved(load(file), given).plausible.items():
        if stated := variant.settled_by(given):
            variants.left_out[name] = f"{stated} states it"
            continue
        try:
            variants.devices[name] = _resolved(load(file), [*given, *variant.overrides])
        except DescriptionError as error:
            if not given:
                raise
            variants.left_out[name] = error.message
    return variants


@cache
def _check_variants(file: str, digest: str) -> None:
    """Check the variants of a file of this content once; where it is at fault itself, its own."""
    try:
        variants = _resolved(load(file), []).plausible
    except DescriptionError:
        document = load(file)
        complete(document)
        variants = take_variants(document)
    mistakes = Mistakes()
    for variant in variants.values():
        with mistakes.met():
            _resolved(load(file), variant.overrides)
    mistakes.answer()


def _parsed(overrides: Iterable[str]) -> list[Override]:
    return [(*parse_assignment(text), Mark(f"--set {text}")) for text in overrides]


def _resolved(document: Document, overrides: list[Override]) -> Device:
    if document.data.get("kind") == "accelerator":
        return _accelerator(document, overrides)
    if document.data.get("kind") != "memory":
        raise document.error(
            f"expected kind: accelerator or memory; got {document.data.get('kind')!r}", ("kind",)
        )
    _override(document, overrides)
    memory = document.build(MemorySpec)
    plausible = take_variants(document)
    assumed, config = _assumed(document, ""), {"memory": document.data}
    return Device(memory.name, memory, None, assumed, config, _confidence(document), plausible)


def _is_path(name_or_path: str) -> bool:
    return "/" in name_or_path or name_or_path.endswith((".yaml", ".yml"))


def _find_device(name_or_path: str) -> Path:
    if _is_path(name_or_path):
        return find("accelerators", name_or_path)
    for kind in ("accelerators", "memories"):
        if name_or_path in names(kind):
            return find(kind, name_or_path)
    hint = elsewhere(name_or_path) or nearest(name_or_path, device_names())
    raise DescriptionError(f"no shipped device {name_or_path!r}; {hint}")


def _accelerator(document: Document, overrides: list[Override]) -> Device:
    for path, value, _ in overrides:
        if path == ("memory",) and value != document.data.get("memory"):
            swap_memory(document, str(value))
    for path, value, mark in overrides:
        if path[0] not in _MEMORY_KEYS:
            document.put(path, value, mark)
    complete(document)
    complete_kernels(document)
    mistakes, accelerator, memory = Mistakes(), None, None
    with mistakes.met():
        accelerator = document.build(AcceleratorSpec)
    if accelerator is not None and accelerator.given is not None:
        return _given(document, accelerator, overrides)
    if document.data.get("memory") == GIVEN:
        mistakes.answer()  # there is no memory to look further in
    _forget_published(document)
    with mistakes.met():
        memory_document = memory_of(document)
        of_memory = [override for override in overrides if override[0][0] in _MEMORY_KEYS]
        overlaid = _overlaid(document) + of_memory
        with mistakes.met():
            _override(memory_document, overlaid)
        if accelerator is not None:
            memory = _behind_cache(memory_document, document, accelerator, overlaid)
        else:
            memory = memory_document.build(MemorySpec)
    if accelerator is not None and memory is not None:
        for mistake in _unfit(document, accelerator, memory):
            with mistakes.met():
                raise mistake
    mistakes.answer()
    assert accelerator
    further = _further(document, accelerator)
    plausible = take_variants(memory_document) | take_variants(document)
    assumed = _assumed(document, "") | _assumed(memory_document, "memory:")
    config = {"accelerator": document.data, "memory": memory_document.data}
    return Device(
        accelerator.name, memory, accelerator, assumed, _with_further(config, further),
        _confidence(memory_document), plausible, further,
    )  # fmt: skip


def _further(document: Document, accelerator: AcceleratorSpec) -> dict[str, Device]:
    """The memories beside the main one. Raises DescriptionError."""
    found, mistakes = {}, Mistakes()
    for name, each in accelerator.memories.items():
        with mistakes.met():
            try:
                found[name] = _accelerator(read_through(document, name, each), [])
            except DescriptionError as error:
                place = f"memories.{name}" + (f".{error.path}" if error.path else "")
                raise DescriptionError(error.message, error.file, error.line, place) from None
    mistakes.answer()
    return found


def _with_further(config: dict[str, Any], further: dict[str, Device]) -> dict[str, Any]:
    """With what those are resolved to, where there are any."""
    if not further:
        return config
    return config | {"memories": {name: each.config for name, each in further.items()}}


def _unfit(
    document: Document, accelerator: AcceleratorSpec, memory: MemorySpec
) -> Iterator[DescriptionError]:
    """Where accelerator and memory do not go together."""
    if accelerator.capacity > (held := _held(accelerator, memory)):
        yield document.error(
            f"{accelerator.capacity / 2**30:,.6g} GiB is more than the {held / 2**30:,.6g} GiB that"
            f" {accelerator.channels} channels of {memory.name} hold"
            f"{' beside check bytes' * bool(memory.controller.inline_ecc)}; expected no more",
            ("capacity",),
        )
    sizes = {("interleave",): accelerator.interleave, ("dma", "request"): accelerator.dma.request}
    for path, size in sizes.items():
        if size % memory.organisation.burst_bytes:
            yield document.error("must be a multiple of a burst", path)


def _given(document: Document, accelerator: AcceleratorSpec, overrides: list[Override]) -> Device:
    """A device whose memory is not simulated."""
    for path, _, mark in overrides:
        if path[0] in _MEMORY_KEYS:
            raise DescriptionError(
                f"{accelerator.name} has no simulated memory", mark.file, mark.line, dotted(path)
            )
    _forget_published(document)
    further = _further(document, accelerator)
    plausible = take_variants(document)
    config = _with_further({"accelerator": document.data}, further)
    return Device(
        accelerator.name, None, accelerator, _assumed(document, ""), config, {}, plausible, further
    )


def _forget_published(document: Document) -> None:
    """What changes no result is in no hash."""
    for key in ("bus", "known_as", "on_chip"):
        document.data.pop(key, None)
    kernels = document.data.get("kernels", {})
    if "tables" not in kernels:
        kernels.pop("system", None)


def _overlaid(accelerator: Document) -> list[Override]:
    """What the accelerator lays over its memory: controller, address map and memory_set."""
    data = accelerator.data
    overrides: list[Override] = [
        (("controller", key), value, accelerator.mark(("controller", key)))
        for key, value in data.get("controller", {}).items()
    ]
    if data.get("address_map") is not None:
        overrides.append(
            (("address_map",), data["address_map"], accelerator.mark(("address_map",)))
        )
    for name, value in data.get("memory_set", {}).items():
        mark = accelerator.mark(("memory_set", name))
        keys = value if name in _GROUPS and isinstance(value, dict) else {"": value}
        for key, each in keys.items():
            overrides.append((tuple(".".join((name, key)).rstrip(".").split(".")), each, mark))
    return overrides


def _behind_cache(
    memory: Document, document: Document, accelerator: AcceleratorSpec, overlaid: list[Override]
) -> MemorySpec:
    """The memory, its write queues as long as a memory-side cache collects writes, unless one of
    `overlaid` states their length."""
    described = memory.build(MemorySpec)
    cache = accelerator.memory_side_cache
    stated = any(path in (("controller",), _WRITE_QUEUE) for path, _, _ in overlaid)
    if cache is None or cache.policy == "write_through" or stated:
        return described
    try:
        entries = cache.write_queue(described)
    except ValueError as error:
        raise document.error(str(error), ("memory_side_cache", "collected")) from None
    memory.put(_WRITE_QUEUE, entries, document.mark(("memory_side_cache",)))
    return memory.build(MemorySpec)


def _override(memory: Document, overrides: list[Override]) -> None:
    """Complete a memory and lay `overrides` over it."""
    for path, value, mark in overrides:
        if path in _FIRST:
            memory.put(path, value, mark)
    complete(memory)
    choose_density(memory)
    mistakes = Mistakes()
    for path, value, mark in overrides:
        with mistakes.met():
            if path not in _FIRST:
                memory.put(_canonical(path, memory, mark), value, mark)
    mistakes.answer()


def choose_density(memory: Document) -> None:
    """Put the rows and timings of the chosen density in their places, and forget the choice (so
    that a resolved description reads as it stands). Raises DescriptionError."""
    densities = memory.data.get("densities", {})
    if memory.data.get("density") is None or not isinstance(densities, dict):
        return
    chosen = memory.data["density"]
    if not isinstance(chosen, str) or chosen not in densities:
        hint = nearest(str(chosen), [*densities])
        raise memory.error(f"no density {chosen!r}; {hint}", ("density",))
    place: KeyPath = ("densities", chosen)
    if memory.get((*place, "rows")) is not None:
        memory.copy((*place, "rows"), ("organisation", "rows"))
    for name in memory.get((*place, "timing")) or {}:
        memory.copy((*place, "timing", name), ("timing", name))
    del memory.data["density"]


def _canonical(path: KeyPath, document: Document, mark: Mark) -> KeyPath:
    """`timing.nRCD` means `timing.tRCD` where the memory spells it so, and the like."""
    if len(path) != 2 or path[0] != "timing":
        return path
    known = document.data.get("timing", {})
    name = str(path[1])
    swapped = {"n": "t", "t": "n"}.get(name[:1], "") + name[1:]
    for candidate in (name, swapped, _TIMING_ALIASES.get(name, "")):
        if candidate in known:
            return ("timing", candidate)
    hint = nearest(name, list(known))
    raise DescriptionError(
        f"this memory has no such timing; {hint}", mark.file, mark.line, dotted(path)
    )


def _assumed(document: Document, prefix: str) -> dict[str, str]:
    return {prefix + path: str(p.value) for path, p in document.assumed().items()}


def _confidence(memory: Document) -> dict[str, str]:
    return {
        dotted(path): provenance.confidence
        for path, provenance in memory.provenance.items()
        if provenance.confidence
    }
