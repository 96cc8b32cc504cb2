"""A study device by device: what makes it one of a device, and what was found on each.

The study's own model is kept where it fits, in narrower weights where it then fits, else the first
of MODELS that does. Where only a bandwidth is given nothing is simulated: memory is analytic.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hwmodel.description.description import DescriptionError
from hwmodel.measure.racm import read_extents
from hwmodel.specs.device import load_device
from hwmodel.specs.transformer import load_model
from sweeps.analyse.figures import limit_texts
from sweeps.analyse.rows import at
from sweeps.analyse.statistics import Interval
from sweeps.ask.fit import LIMIT, Misfit, fit
from sweeps.ask.fit_question import question_of
from sweeps.run.reading import read_run
from sweeps.run.store import RunDirectory
from sweeps.study.first import PAPER
from sweeps.study.study_findings import STUDY, find_study
from sweeps.study.study_spec import BASE, load_study
from sweeps.study.trials import LEAST, Trials, importances

MODELS = ("llama-3.1-8b", "llama-3.2-3b", "qwen3-0.6b")
"""Instead of a model that does not fit (assumed: each half of the one before, or less)."""
BLOCK_TOKENS = 16
"""Of a block whose keys, or values, of one layer are one extent (vLLM's default)."""
SEED, MEASURED_NS = 1, 16_000.0
FEWEST = 4
"""Of the longest requests that have to fit at once (assumed: fewer leave no batch to fill)."""
NARROWER = (None, "int8", "w4a16")
"""Formats of the weights that are tried, the model's own first."""


class DeviceFound(NamedTuple):
    """What a study found on a device. Gains are of the best trial, over another one's objective;
    None where that is not in its finale."""

    device: str
    model: str
    fidelity: str
    """Of its memory: sampled, or analytic where only a bandwidth is given."""
    bounds: list[int] | None
    """Of the best trial's buckets, tokens; None of a policy without buckets."""
    levels: list[float] | None
    """The shares of lengths that these hold."""
    pool_share: float | None
    """Of the memory, for what fits in no bucket."""
    best: str
    """Which trial it is."""
    mean: float
    """What it has of the study's objective, which `metric` names."""
    metric: str
    first: str | None
    """The best of the trials that needed no search."""
    added: Interval | None
    """What the search added to that; None where the best is that trial."""
    over: dict[str, Interval | None]
    """`paper`, `odma-best`, `paged`: how much more the best serves."""
    binds: str
    """What limits the best most of the time."""
    mattered: dict[str, float]
    """Setting -> its share of importance (PED-ANOVA), the largest first; none of few trials."""
    scattered: float | None
    """What reading scattered blocks costs: 1 less the ratio of the bandwidth of extents of one
    block of `BLOCK_TOKENS` to that of one run; None where only a bandwidth is given."""

    @property
    def record(self) -> dict[str, Any]:
        """As JSON."""
        over = {name: gap and asdict(gap) for name, gap in self.over.items()}
        return self._asdict() | {"added": self.added and asdict(self.added), "over": over}


RIVALS = (PAPER, "odma-best", "paged")
"""What the best is held against in the table."""


def assignments(study: str, device: str, overrides: Iterable[str]) -> list[str]:
    """What `--set` makes of a study one of this device, before the user's own `overrides`. Raises
    DescriptionError where no model fits."""
    given = [text.partition("=")[0].removeprefix("base.") for text in overrides]
    made = [f"device={device}"]
    loaded = load_study(study, [*overrides])
    card = load_device(device)
    if card.accelerator is None:
        raise DescriptionError("is a memory; a study serves, and needs an accelerator", device)
    if card.given is not None and "serving.memory.fidelity" not in given:
        made.append("serving.memory.fidelity=analytic")
    if "model" not in given and "serving.weights" not in given:
        made += _model(loaded.base, device)
    return made


def _model(base: Any, device: str) -> list[str]:
    """The model and weights that fit, as assignments; none where the study's own do."""
    card, limit = load_device(device), base.serving.engine.max_tokens or LIMIT
    for name in dict.fromkeys((base.model, *MODELS)):
        shape = load_model(name)
        for weights in NARROWER:
            if weights and shape.stored_as(weights, None).weight_bytes >= shape.weight_bytes:
                continue
            asked = question_of({"weights": weights, "limit": limit})
            found = fit(card, shape, asked)
            if not isinstance(found, Misfit) and found.layout.tokens >= FEWEST * limit:
                own = [] if name == base.model else [f"model={name}"]
                return own + ([f"serving.weights={weights}"] if weights else [])
    raise DescriptionError(f"none of {base.model}, {', '.join(MODELS)} fits", device)


def read_device(path: Path) -> DeviceFound:
    """What the study in a directory found. Raises DescriptionError where it has no finale."""
    directory = RunDirectory(path)
    found = find_study(read_run(directory, {"study": STUDY}), directory)
    own, trials, base = found.own, found.own.trials, found.table.config["base"]
    if own.gain is None:
        raise DescriptionError("has no finale yet; --resume continues", path)
    paper = next((n for n in own.gain.gains if n.startswith(PAPER)), BASE)
    names = dict(zip(RIVALS, (paper, *RIVALS[1:]), strict=True))
    chosen = {setting.path: setting.value for setting in own.settings}
    share = chosen.get("serving.policy.pool_share", at(base, "serving", "policy", "pool_share"))
    known = trials.limit or {}
    return DeviceFound(
        base["device"], _stored(base), base["serving"]["memory"]["fidelity"],
        known.get("chosen_bounds"), known.get("chosen_levels"), share, own.gain.chosen,
        own.gain.mean, own.gain.metric, own.gain.first,
        own.gain.added, {key: own.gain.gains.get(name) for key, name in names.items()},
        next(iter(limit_texts(trials.contenders[0].limits())), "nothing"),
        by_setting(found_importances(trials)),
        _scattered(base["device"], base["model"]),
    )  # fmt: skip


def found_importances(trials: Trials) -> dict[str, Interval]:
    """Of as many trials as tell anything."""
    return importances(trials) if len(trials.alike()) >= LEAST else {}


def by_setting(found: dict[str, Interval]) -> dict[str, float]:
    """Shares of settings, those of a list as one, the largest first."""
    whole: dict[str, float] = {}
    for name, each in found.items():
        setting = name.partition("[")[0].removesuffix(".by")
        whole[setting] = whole.get(setting, 0.0) + each.mean
    return dict(sorted(whole.items(), key=lambda item: -item[1]))


def _scattered(name: str, model: str) -> float | None:
    """See `DeviceFound.scattered`; one simulation each, of extents anywhere and of one run."""
    card, shape = load_device(name), load_model(model)
    if card.given is not None:
        return None
    block = BLOCK_TOKENS * shape.kv_half_bytes
    gbps = [
        read_extents(card, extent, np.random.default_rng(SEED), MEASURED_NS).gbps
        for extent in (block, None)
    ]
    return max(1 - gbps[0] / gbps[1], 0.0)


def _stored(base: dict[str, Any]) -> str:
    """The model, and the format of its weights where that is not its own."""
    weights = base["serving"].get("weights")
    return f"{base['model']} {weights}" if weights else str(base["model"])
