"""The connectors that a serving description can name. To add one, add a line here."""

from __future__ import annotations

from typing import Annotated

from pydantic import SerializeAsAny

from hwmodel.description.written import ByName, Models, Named
from policies.transfers.kv_connector import ConnectorOptions, KvConnector
from policies.transfers.tiers import Tiers

CONNECTORS: dict[str, type[KvConnector]] = {
    "tiers": Tiers,
}
"""In the order in which they are asked."""

_OPTIONS: Models = lambda: {name: kind.Options for name, kind in CONNECTORS.items()}  # noqa: E731
TiersChoice = Annotated[
    SerializeAsAny[ConnectorOptions] | None, Named("connector", "tiers", _OPTIONS)
]
"""Field type: the options of the connector of this name, which has a key of its own."""
ConnectorsByName = Annotated[
    dict[str, SerializeAsAny[ConnectorOptions]], ByName("connector", _OPTIONS)
]
"""Field type: connectors by name, each with its options."""
