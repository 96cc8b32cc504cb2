"""Step times with a drafter: k passes of it behind each step of the model.

Its first pass takes all rows of the step, prompt chunks too, and stores their KV; each further one
takes a token of every sequence that decodes next. A pass reads the drafter's weights and KV at the
efficiency of the model's, and costs its layers' overhead, not a step's (assumed: launched with it).
With pipeline stages the drafter is on the last one, behind whose end its passes come (assumed).
EAGLE (Li et al. 2024) and MTP (DeepSeek-V3, arXiv 2412.19437) draft with one layer like the model's
last and the model's own head; the projection that joins two hidden states is left out.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hwmodel.description.description import DescriptionError
from hwmodel.specs.device import Device
from hwmodel.specs.transformer import TransformerSpec, load_model, shard
from policies.engines.scheduled_step import Step
from policies.engines.speculation import SpeculationSpec
from policies.memory.pipeline import PipelineSteps
from policies.memory.step import StepModel
from policies.memory.step_times import Efficiency, StepTimes
from policies.memory.step_work import Phase


class Drafter(NamedTuple):
    """Of a card. `model`: whose step is a pass; `weight_bytes`: held beside the model's."""

    model: TransformerSpec
    weight_bytes: int


def drafter_of(spec: SpeculationSpec, local: TransformerSpec, cards: int) -> Drafter | None:
    """The drafter of `local`, the shard of a model on each of `cards`; None: text is looked up.
    Raises DescriptionError where a draft model does not go with it."""
    if spec.method == "ngram":
        return None
    if spec.draft_model is not None:
        own = load_model(spec.draft_model)
        if -(-own.vocabulary // cards) != local.vocabulary:
            raise DescriptionError(
                f"serving.speculation.draft_model: {own.name} has a vocabulary of"
                f" {own.vocabulary}; expected that of {local.name}, {local.vocabulary * cards}"
            )
        if own.state is not None or own.window is not None:
            raise DescriptionError(
                f"serving.speculation.draft_model: {own.name} has states or windows; expected full"
                " attention in every layer"
            )
        part = shard(own.stored_as(None, local.kv), cards)
        return Drafter(part, part.weight_bytes)
    experts, last = local.experts, local.layers - 1
    if experts is not None:
        mixed = experts.at(last)
        experts = experts.model_copy(update={"first_dense_layers": 0}) if mixed else None
    one = {"layers": 1, "experts": experts, "positions": 0, "state": None, "window": None}
    model = local.model_copy(update=one)
    return Drafter(model, model.layer_weight_edges[-1])


class DraftingSteps:
    """As `StepModel`, with `passes` of a drafter."""

    def __init__(
        self, steps: StepModel | PipelineSteps, drafter: StepModel, passes: int, device: Device
    ) -> None:
        assert device.accelerator is not None
        self.steps = steps
        """Of the model."""
        self._drafter, self._passes = drafter, passes
        self._launch_s = device.accelerator.kernels.host * 1e-9
        self.bandwidth, self.stages = steps.bandwidth, steps.stages
        self.pipeline = steps.pipeline

    def times(self, step: Step, rounds: int, efficiency: Efficiency) -> StepTimes:
        """Of one step; of several nothing is drafted alike."""
        assert rounds == 1
        times = self.steps.times(step, 1, efficiency)
        passed = [self._drafter.times(step.still, 1, efficiency)]
        lasts = [chunk for chunk in step.chunks if chunk.last]
        drafting = np.append(step.decode, np.array([last.request for last in lasts], np.int64))
        context = step.context + len(step.decode) + sum(last.start + last.tokens for last in lasts)
        if self._passes > 1 and len(drafting):
            there = step.elsewhere[0] // (1 + self._passes), 0  # a token of each, too
            further = Step(drafting, context, [], [], 0, step.limit, elsewhere=there)
            passed.append(self._drafter.times(further, self._passes - 1, efficiency))
        draft_s = sum(float(each.total_s.sum()) for each in passed)
        draft_s -= sum(len(each.total_s) for each in passed) * self._launch_s
        read = sum(each.work.moved for each in passed)
        draft = Phase({"drafts": read}, {}, read)
        layers = sum(each.work.rounds * each.work.layers for each in (times, *passed))
        work = times.work._replace(layers=layers, phases={**times.work.phases, "draft": draft})
        return times._replace(total_s=times.total_s + draft_s, draft_s=draft_s, work=work)
