"""The allocators that a serving description can name. To add one, add a line here."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import SerializeAsAny

from hwmodel.description.description import DescriptionError
from hwmodel.description.written import Chosen
from policies.allocators.allocator import Allocator, Limits, PolicyOptions
from policies.allocators.declaration import DECLARED
from policies.allocators.ideal import IdealAllocator
from policies.allocators.kv_layout import KvLayout
from policies.allocators.odma import OdmaAllocator
from policies.allocators.odma_best import OdmaBestAllocator
from policies.allocators.oracle import OracleAllocator
from policies.allocators.orca import OrcaAllocator
from policies.allocators.paged import PagedAllocator
from policies.allocators.radix import RadixAllocator
from policies.allocators.s3 import S3Allocator
from policies.allocators.static import StaticAllocator
from policies.allocators.vattention import VattentionAllocator

POLICIES: dict[str, type[Allocator]] = {
    "static": StaticAllocator, "paged": PagedAllocator, "odma": OdmaAllocator,
    "orca": OrcaAllocator, "s3": S3Allocator, "oracle": OracleAllocator, "ideal": IdealAllocator,
    "vattention": VattentionAllocator, "radix": RadixAllocator, "odma-best": OdmaBestAllocator,
}  # fmt: skip
DEFAULT_POLICY = "paged"


def default_policy() -> PolicyOptions:
    """The options of the default policy, with their own defaults."""
    return POLICIES[DEFAULT_POLICY].Options.model_validate({})


def policy_class(options: PolicyOptions) -> type[Allocator]:
    """The class of a policy, with all that it declares. Raises DescriptionError where it lacks any
    of `DECLARED`, and says which."""
    kind = POLICIES[options.name]
    lacks = [each for each in DECLARED if each not in vars(kind)]
    if lacks:
        raise DescriptionError(
            f"policy {options.name}: {kind.__name__} does not declare {', '.join(lacks)}; without "
            "them its losses cannot be explained nor its options searched "
            "(policies.allocators.declaration)"
        )
    return kind


def predicts(options: PolicyOptions) -> bool:
    """Whether a policy reads predictions of lengths, so that its requests wait for theirs: one that
    declares what mispredictions cost it, and a plug-in that does not declare what it loses."""
    losses = vars(POLICIES[options.name]).get("losses")
    if losses is None:
        return True
    return "prediction" in losses and losses["prediction"].applies(options)


def refusal(kind: type[Allocator], option: str, value: Any) -> str | None:
    """Why a study may not give this value to an option; None where it may."""
    if option not in kind.searched:
        options = ", ".join(kind.searched)
        return f"{kind.__name__} declares no search of {option}; expected {options}"
    allowed = kind.searched[option]
    number = len(value) if isinstance(value, list) else value
    if allowed is None or not isinstance(number, int | float):
        return None
    if allowed.least <= number <= allowed.most:
        return None
    return f"expected {option} from {allowed.least:g} to {allowed.most:g}; got {number}"


def build(layout: KvLayout, requests: int, limits: Limits, options: PolicyOptions) -> Allocator:
    """The allocator that the options name, on the KV region of a model. Raises DescriptionError
    where one of one's own has more room than there is."""
    allocator = POLICIES[options.name](layout, requests, limits, options)
    if allocator.free_slots > layout.slots:
        raise DescriptionError(
            f"policy {options.name}: it has {allocator.free_slots} free slots, and memory has "
            f"{layout.slots}"
        )
    return allocator


_CHOSEN = Chosen(
    "policy", lambda: {name: kind.Options for name, kind in POLICIES.items()}, short=True
)
PolicySpec = Annotated[SerializeAsAny[PolicyOptions], _CHOSEN]
"""Field type: the options of any registered policy, chosen by `name`."""
