"""A study device by device: what makes it one of a device, and what was found on each.

The study's own model is kept where it fits, in narrower weights where it then fits, else the first
of MODELS that does. Where only a bandwidth is given the study's stand-in is simulated, or without
one nothing: memory is analytic. A study begins with what won on the device before it on which
requests have the most similar room.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hwmodel.description.description import DescriptionError
from hwmodel.description.yaml_writer import to_yaml_flow
from hwmodel.measure.racm import read_extents
from hwmodel.specs.device import Device, load_device
from hwmodel.specs.transformer import load_model
from sweeps.analyse.figures import limit_texts
from sweeps.analyse.rows import at
from sweeps.analyse.statistics import Interval
from sweeps.ask.fit import LIMIT, Misfit, fit
from sweeps.ask.fit_library import question_of
from sweeps.plan.experiment import device_of
from sweeps.run.reading import read_run
from sweeps.run.store import CONFIG, RunDirectory
from sweeps.study.family_findings import alone_signs
from sweeps.study.first import PAPER
from sweeps.study.study_findings import STUDY, find_study
from sweeps.study.study_spec import BASE, Study, load_study
from sweeps.study.trials import FINALE, judged

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
    mattered: dict[str, Interval]
    """Setting that the best has otherwise than the base -> what it changes to set it back alone,
    where that is significant; the largest loss first."""
    undecided: list[str]
    """Settings of which that is not."""
    families: dict[str, dict[str, Any]]
    """Of each family its trials, and its best in the finale over the best outside of it."""
    phase: str | None
    """Who proposed the best: `first` (arithmetic), `random` or `tpe`."""
    quarter: float
    """What a quarter of the largest reservation of a request is of the KV memory."""
    scattered: float | None
    """What reading scattered blocks costs: 1 less the ratio of the bandwidth of extents of one
    block of `BLOCK_TOKENS` to that of one run; None where only a bandwidth is given."""

    @property
    def simulated(self) -> bool:
        """Whether its memory is."""
        return self.fidelity == "sampled"

    @property
    def record(self) -> dict[str, Any]:
        """As JSON."""
        made = {name: [gap and asdict(gap) for gap in getattr(self, name).values()]
                for name in ("over", "mattered")}  # fmt: skip
        return self._asdict() | {
            "added": self.added and asdict(self.added),
            **{name: dict(zip(getattr(self, name), each, strict=True))
               for name, each in made.items()},
        }  # fmt: skip


RIVALS = (PAPER, "odma-best", "paged", "static")
"""What the best is held against in the table."""


class Counts(NamedTuple):
    """On how many devices the best serves more than another, and less: significantly, all devices
    taken as one family (Holm), and by more than what counts as none."""

    devices: int
    more: int
    less: int


def counts(gaps: Iterable[tuple[str, Interval | None]]) -> Counts:
    """Of what was found on each device over one other."""
    signs = judged({device: gap for device, gap in gaps if gap is not None})
    return Counts(
        len(signs), sum(s > 0 for s in signs.values()), sum(s < 0 for s in signs.values())
    )


def assignments(study: str, device: str, overrides: Iterable[str]) -> list[str]:
    """What `--set` makes of a study one of this device, before the user's own `overrides`. Raises
    DescriptionError where no model fits."""
    given = [text.partition("=")[0].removeprefix("base.") for text in overrides]
    made = [f"device={device}"]
    loaded = _loaded(study, tuple(overrides))
    card, stand_in = load_device(device), loaded.spec.stand_ins.get(device)
    if card.accelerator is None:
        raise DescriptionError("is a memory; a study serves, and needs an accelerator", device)
    if stand_in is not None and "device_set" not in given:
        made.append(f"device_set={to_yaml_flow(stand_in)}")
    elif card.given is not None and "serving.memory.fidelity" not in given:
        made.append("serving.memory.fidelity=analytic")
    if "model" not in given and "serving.weights" not in given:
        made += _model(loaded.base, device)
    return made


@lru_cache(maxsize=1)
def _loaded(study: str, overrides: tuple[str, ...]) -> Study:
    """The study without a device, once for all of them."""
    return load_study(study, [*overrides])


class Winner(NamedTuple):
    """What won on a device."""

    device: str
    quarter: float
    """See `DeviceFound`."""
    overrides: dict[str, Any]


def winner(device: DeviceFound, path: Path) -> Winner | None:
    """Of the study in a directory; None where its best is not a trial."""
    for _, line in RunDirectory(path).lines(FINALE):
        if line["contender"] == device.best:
            return Winner(device.device, device.quarter, line["overrides"])
    return None


def started(winners: Iterable[Winner], study: Study, path: Path) -> list[str]:
    """What `--set` makes a study begin with what won on the device of these whose requests have the
    most similar room (assumed: what matters most of a device); where the directory has a study,
    with what that began with."""
    if (path / CONFIG).is_file():
        return [f"known={to_yaml_flow(RunDirectory(path).config().get('known') or {})}"]
    if study.spec.fleet is not None:
        return []
    nearest = min(
        winners, key=lambda each: abs(math.log(each.quarter / study.quarter)), default=None
    )
    if nearest is None:
        return []
    known = {**study.spec.known, f"won on {nearest.device}": nearest.overrides}
    return [f"known={to_yaml_flow(known)}"]


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
    paper = next((n for n in own.gain.gains if n.startswith(f"{PAPER} (")), BASE)
    names = dict(zip(RIVALS, (paper, *RIVALS[1:]), strict=True))
    chosen = {setting.path: setting.value for setting in own.settings}
    share = chosen.get("serving.policy.pool_share", at(base, "serving", "policy", "pool_share"))
    known = (trials.limit or {}).get("chosen", {})
    signs = alone_signs(own.alone)
    back = [(each, signs[i]) for i, each in enumerate(own.alone) if each.back]
    back.sort(key=lambda pair: trials.sign * pair[0].gain.mean)
    study = load_study(str(path / CONFIG))
    return DeviceFound(
        base["device"], _stored(base), base["serving"]["memory"]["fidelity"],
        known.get("bounds"), known.get("levels"), share, own.gain.chosen,
        own.gain.mean, own.gain.metric, own.gain.first,
        own.gain.added, {key: own.gain.gains.get(name) for key, name in names.items()},
        next(iter(limit_texts(trials.contenders[0].limits())), "nothing"),
        {_last(each.path): each.gain for each, sign in back if sign},
        [_last(each.path) for each, sign in back if not sign],
        {each.name: asdict(each) for each in own.families},
        own.phase, study.quarter, _scattered(device_of(study.base), base["model"]),
    )  # fmt: skip


def _last(path: str) -> str:
    return path.rpartition(".")[2]


def _scattered(card: Device, model: str) -> float | None:
    """See `DeviceFound.scattered`; one simulation each, of extents anywhere and of one run."""
    shape = load_model(model)
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
