"""The predictors that `serving.predictor` can name. To add one, add a line here; the first is the
default."""

from __future__ import annotations

from typing import Annotated

from pydantic import SerializeAsAny

from hwmodel.description.description import DescriptionError
from hwmodel.description.written import Chosen
from policies.predictors.confusion_predictor import ConfusionPredictor
from policies.predictors.lognormal_predictor import LognormalPredictor
from policies.predictors.oracle_predictor import OraclePredictor
from policies.predictors.predictor import PredictorSpec

PREDICTORS: dict[str, type[PredictorSpec]] = {
    "oracle": OraclePredictor,
    "lognormal": LognormalPredictor,
    "confusion": ConfusionPredictor,
}
"""Kind -> the class that reads it."""
DEFAULT_PREDICTOR = next(iter(PREDICTORS))

PACKAGED = {"trained": "bankwise-trained-predictor"}
"""Kind -> the package under `examples/packages` that brings it."""

_CHOSEN = Chosen(
    "predictor", lambda: dict(PREDICTORS), DEFAULT_PREDICTOR, key="kind",
    packaged=tuple(PACKAGED.items()),
)  # fmt: skip
ChosenPredictor = Annotated[SerializeAsAny[PredictorSpec], _CHOSEN]
"""Field type: a predictor of any registered kind."""


def default_predictor() -> PredictorSpec:
    """The default one."""
    return PREDICTORS[DEFAULT_PREDICTOR].model_validate({})


def exact_predictor() -> PredictorSpec:
    """One that knows the lengths. Raises DescriptionError where none is registered."""
    for kind in PREDICTORS.values():
        if kind.exact:
            return kind.model_validate({})
    raise DescriptionError("no predictor that knows the lengths is registered")
