"""The controllers that `cluster` can name. To add one, add a line here."""

from __future__ import annotations

from typing import Annotated

from pydantic import SerializeAsAny

from hwmodel.description.written import ByName, Models, Named
from policies.serving.dropping import Dropping
from policies.serving.lending import Lending
from policies.serving.migration import Migrating
from policies.serving.moving_options import ControllerOptions
from policies.serving.node_controller import Controller

CONTROLLERS: dict[str, type[Controller]] = {
    "dropping": Dropping,
    "migration": Migrating,
    "lending": Lending,
}

_OPTIONS: Models = lambda: {name: kind.Options for name, kind in CONTROLLERS.items()}  # noqa: E731
_Options = SerializeAsAny[ControllerOptions]
DroppingChoice = Annotated[_Options | None, Named("controller", "dropping", _OPTIONS)]
MigrationChoice = Annotated[_Options | None, Named("controller", "migration", _OPTIONS)]
LendingChoice = Annotated[_Options | None, Named("controller", "lending", _OPTIONS)]
"""Field types: the options of the controller of this name, which has a key of its own."""
ControllersByName = Annotated[dict[str, _Options], ByName("controller", _OPTIONS)]
"""Field type: controllers by name, each with its options."""
