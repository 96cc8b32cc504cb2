"""A serving that is described by settings, for the records of what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np

from hwmodel.description.description import Document
from hwmodel.description.yaml_reader import override
from hwmodel.specs.attention import AttentionWindow
from hwmodel.specs.device import load_device
from hwmodel.specs.transformer import load_model
from policies.requests.requests import Requests
from policies.serving.serving import serve
from policies.serving.serving_spec import ServingSpec
from tests.policies.small import LATENT, MODEL, WINDOWS, device

NEAR = MODEL.model_copy(update={"name": "near", "window": AttentionWindow(tokens=64)})
MODELS = {"small": MODEL, "latent": LATENT, "windows": WINDOWS, "near": NEAR}


def serve_described(model: str, settings: list[str]) -> None:
    """Four requests of 20 and 5 tokens; `samples`, `beams` and `turns` are of all. A model of
    these tests has a card of 1,024 slots, one of the library an A100."""
    given = {"model": model, "gpu_memory_utilization": 1.0, "activation_bytes": "0B"}
    document = Document(given if model in MODELS else {"model": model}, "serving")
    for each in settings:
        override(document, each)
    data: dict[str, Any] = document.data
    columns: dict[str, Any] = {}
    if "samples" in data:
        columns |= {"samples": np.full(4, data.pop("samples"))}
    if data.pop("beams", False):
        columns |= {"forks": np.full(4, 0.2)}
    turn = np.arange(4) % (turns := data.pop("turns", 1))
    if turns > 1:
        columns |= {"session": np.arange(4) // turns, "think_s": np.where(turn, 0.5, np.nan)}
    stream = Requests(np.zeros(4), 20 + 25 * turn, np.full(4, 5), **columns)
    card = device(1024) if model in MODELS else load_device("a100-80gb")
    chosen = MODELS.get(model) or load_model(model)
    serve(card, chosen, document.build(ServingSpec), stream, seed=1)
