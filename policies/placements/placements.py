"""The placements that `serving.memories` can name. To add one, add a line here; `apart` is the
default."""

from __future__ import annotations

from typing import Annotated

from pydantic import SerializeAsAny

from hwmodel.description.written import Chosen
from policies.placements.apart import Apart
from policies.placements.by_head import ByHead
from policies.placements.by_heat import ByHeat
from policies.placements.by_layer import ByLayer
from policies.placements.by_request import ByRequest
from policies.placements.interleaved import Interleaved
from policies.placements.placement import Placement, PlacementOptions
from policies.placements.recent import Recent

PLACEMENTS: dict[str, type[Placement]] = {
    "apart": Apart,
    "interleaved": Interleaved,
    "by_layer": ByLayer,
    "by_head": ByHead,
    "by_request": ByRequest,
    "by_heat": ByHeat,
    "recent": Recent,
}

_CHOSEN = Chosen(
    "placement", lambda: {name: each.Options for name, each in PLACEMENTS.items()},
    "apart", short=True,
)  # fmt: skip
PlacementChoice = Annotated[SerializeAsAny[PlacementOptions], _CHOSEN]
"""Field type: the options of one of the placements, chosen by `name`."""
