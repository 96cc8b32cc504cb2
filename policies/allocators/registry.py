"""The allocators that a serving description can name. To add one, add a line here."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, SerializeAsAny
from pydantic_core import PydanticCustomError

from hwmodel.description.description import nearest
from hwmodel.description.written import Chosen
from policies.allocators.allocator import Allocator, PolicyOptions
from policies.allocators.ceilings import IdealAllocator, OracleAllocator
from policies.allocators.odma import OdmaAllocator
from policies.allocators.orca import OrcaAllocator
from policies.allocators.paged import PagedAllocator
from policies.allocators.s3 import S3Allocator
from policies.allocators.static import StaticAllocator

POLICIES: dict[str, type[Allocator]] = {
    "static": StaticAllocator, "paged": PagedAllocator, "odma": OdmaAllocator,
    "orca": OrcaAllocator, "s3": S3Allocator, "oracle": OracleAllocator, "ideal": IdealAllocator,
}  # fmt: skip


def _options(value: Any) -> Any:
    """`{name: paged, ...}` -> the options of that policy."""
    if not isinstance(value, dict) or "name" not in value:
        return value
    if value["name"] not in POLICIES:
        hint = nearest(str(value["name"]), list(POLICIES))
        raise PydanticCustomError("unknown_policy", "unknown policy; {hint}", {"hint": hint})
    return POLICIES[value["name"]].Options.model_validate(value)


_CHOSEN = Chosen(lambda: {name: kind.Options for name, kind in POLICIES.items()}, short=True)
PolicySpec = Annotated[SerializeAsAny[PolicyOptions], BeforeValidator(_options), _CHOSEN]
"""Field type: the options of any registered policy, chosen by `name`."""
