"""What is asked about, drawn at random: a shipped device, a model that fits it, requests, and how
they are served."""

from __future__ import annotations

import random
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from hwmodel.description.description import DescriptionError
from hwmodel.description.library import names
from hwmodel.specs.device import Device, device_names, load_device
from hwmodel.specs.transformer import TransformerSpec, load_model
from policies.requests.requests import Requests
from policies.serving.serving import ServingResult, serve
from policies.serving.serving_spec import ServingSpec

FITS = 0.7
"""Share of a card's memory that the weights take at most."""
FORMATS = (None, None, "int8", "w4a16")
Change = dict[str, Any]

device_of = cache(lambda name, sets: load_device(name, sets))
model_of = cache(load_model)


class Draw(NamedTuple):
    """`sets`: overrides of the device; `changes`: of a serving description."""

    rng: random.Random
    device: str
    model: TransformerSpec
    requests: Requests
    changes: Change
    seed: int
    sets: tuple[str, ...] = ()

    def __str__(self) -> str:
        said = f"{self.device}, {self.model.name}, {len(self.requests)} requests, {self.changes}"
        return f"{said}, device {self.sets}" if self.sets else said

    @property
    def card(self) -> Device:
        return device_of(self.device, self.sets)

    @property
    def shard(self) -> TransformerSpec:
        """The model as it is stored."""
        return self.model.stored_as(self.changes.get("weights"), self.changes.get("kv"))

    def but(self, *sets: str, requests: Requests | None = None, **changes: Any) -> Draw:
        """The same with these differences; a mapping is laid over the one that is there."""
        merged = dict(self.changes)
        for key, value in changes.items():
            both = isinstance(value, dict) and isinstance(merged.get(key), dict)
            merged[key] = {**merged[key], **value} if both else value
        stream = self.requests if requests is None else requests
        return self._replace(requests=stream, changes=merged, sets=(*self.sets, *sets))

    def under(self, policy: str) -> Draw:
        """The same under another policy, as it is by default."""
        return self._replace(changes={**self.changes, "policy": {"name": policy}})

    def served(self, **more: Any) -> ServingResult:
        """Raises DescriptionError for what does not go together."""
        given = {"model": self.model.name, "memory": {"efficiency": 0.8}, **self.changes}
        together = given.pop("advance_together", True)
        spec = ServingSpec.model_validate(given)
        spec = spec if together else spec.one_by_one()
        return serve(self.card, self.model, spec, self.requests, seed=self.seed, **more)


def draw(seed: int, number: int) -> Draw:
    """The so many-th of a seed."""
    rng = random.Random(f"answers {seed} {number}")
    while True:
        device, name, weights = rng.choice(_cards()), rng.choice(_models()), rng.choice(FORMATS)
        model = model_of(name)
        try:
            stored = model.stored_as(weights, None)
        except DescriptionError:  # a format for other models
            continue
        if stored.weight_bytes < FITS * device_of(device, ()).capacity_bytes:
            break
    changes: Change = {
        "engine": {"max_num_batched_tokens": rng.choice((512, 2048, 8192))},
        "memory": {"efficiency": round(rng.uniform(0.3, 0.9), 3)},
        "policy": {"name": "paged", "prefix_caching": False},
    }
    if weights is not None:
        changes["weights"] = weights
    return Draw(rng, device, model, stream(rng), changes, rng.randrange(1000))


def stream(rng: random.Random, count: int | None = None, at_once: bool = False) -> Requests:
    """Requests at a rate from far below to far above what a card serves."""
    count = count or rng.randint(5, 24)
    draws = np.random.default_rng(rng.randrange(1 << 30))
    gaps_s = draws.exponential(1 / 10 ** rng.uniform(-0.5, 2), count)
    prompts = draws.lognormal(rng.uniform(4, 6.5), rng.uniform(0, 1), count)
    outputs = draws.lognormal(rng.uniform(2, 4.5), rng.uniform(0, 1), count)
    return Requests(
        np.zeros(count) if at_once else np.cumsum(gaps_s),
        np.clip(prompts, 1, 1500).astype(np.int64), np.clip(outputs, 2, 300).astype(np.int64),
    )  # fmt: skip


def at_once(requests: Requests) -> Requests:
    """All there from the start: then steps hold the same requests however long they take."""
    count = np.zeros(len(requests))
    return Requests(count, requests.prompt_tokens, requests.output_tokens)


@cache
def _cards() -> list[str]:
    return [each for each in device_names() if device_of(each, ()).accelerator is not None]


@cache
def _models() -> list[str]:
    return names("models")
