"""A variant: overrides with a name and a role; and a layer, which is one laid over the base."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple, get_args

from hwmodel.description.description import Document, Mark, Strict
from sweeps.plan.place import Override

Change = tuple[str, Any, Mark]
"""A dotted path of an experiment, its new value, and where that was written."""
AS_DESCRIBED = "as described"
"""The name of the base where variants stand beside it."""
Role = Literal["case", "control", "reference", "change", "condition", "objection", "reading"]
"""What a variant is for:

- case: crossed with the axes as the values of one more;
- control: the same points again, beside the main ones;
- reference: does not compete; competitors are held against it;
- change: one at a time beside the base (`rule: effects`);
- condition: as a change, of what is served, so that rates do not compare with the base's;
- objection: what a competitor would plead, for it alone (`rule: crossing`);
- reading: a disputed choice made otherwise, whoever it serves (`rule: crossing`).
"""
ROLES: tuple[str, ...] = get_args(Role)


class VariantSpec(Strict):
    """Overrides with a name."""

    set: dict[str, Any] = {}
    """Dotted path of the experiment -> value."""
    of: str | dict[str, dict[str, Any]] = {}
    """The one competitor that it changes; or competitor -> overrides for it alone, beside `set`."""
    role: Role
    """What it is for."""
    why: str = ""
    """The reason, for what is disputed; `assumed` where there is no source."""
    parts: list[str] = []
    """Changes that are made at once, by name, instead of `set`."""

    @property
    def overrides(self) -> dict[str, Any]:
        """All overrides for whichever competitor."""
        each = {} if isinstance(self.of, str) else self.of
        return {**self.set, **{path: v for own in each.values() for path, v in own.items()}}

    @property
    def competitors(self) -> list[str]:
        """The competitors that `of` names."""
        return [self.of] if isinstance(self.of, str) else list(self.of)

    def changes(self, document: Document, name: str) -> list[Change]:
        """What `set` lays over an experiment; name: its own."""
        at = ("variants", name, "set")
        return [(path, v, document.mark((*at, path))) for path, v in self.set.items()]

    def own_changes(self, document: Document, name: str) -> dict[str, list[Change]]:
        """Competitor -> what `of` lays over it alone."""
        at = ("variants", name, "of")
        each = {} if isinstance(self.of, str) else self.of
        return {
            of: [(path, v, document.mark((*at, of, path))) for path, v in own.items()]
            for of, own in each.items()
        }


class Layer(NamedTuple):
    """What is laid over the base before the axes are crossed, or after them."""

    head: dict[str, Any]
    """What names it: goes before the values of the axes into a point's overrides."""
    changes: list[Change]
    competitor: str | None = None
    """The one of the compared values that is changed, by its label; None: all."""
    within: dict[str, Any] | None = None
    """Values of the axes that are not compared; None: all of them."""
    own: dict[str, list[Change]] = {}
    """Competitor, by its label -> what is changed for it alone, beside `changes`."""


def places(variants: Mapping[str, Any]) -> Iterator[Override]:
    """Where variants, as their YAML has them, give paths of the experiment."""
    for name, variant in variants.items():
        own = variant.get("of") if isinstance(variant.get("of"), dict) else {}
        inner: list[tuple[str, ...]] = [("set", path) for path in variant.get("set") or ()]
        inner += [("of", of, path) for of, each in own.items() for path in each]
        for keys in inner:
            at = ("variants", name, *keys)
            yield Override(keys[-1], at, [at])
