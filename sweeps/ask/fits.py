"""Whether models fit devices, for how many requests, and how fast: a pair, a table, or all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import Field

from hwmodel.description.description import DescriptionError
from hwmodel.specs.mlp import ExpertPlacement
from hwmodel.specs.number_format import KvFormat, WeightFormat
from policies.engines.vllm_version import VersionName
from sweeps.ask.fit import OUTPUT, PROMPT, Fit, Misfit, fit
from sweeps.ask.fit_library import of_library, question_of
from sweeps.ask.fit_section import listing, matrix, record, sheet
from sweeps.ask.question import Count, Question, Several, Text, Typed
from sweeps.sections.section import Section


@dataclass(frozen=True)
class Fits:
    """Each pair that was asked about; `pair`: there is one alone."""

    pairs: list[Fit | Misfit]
    pair: bool

    def record(self) -> Any:
        """A record, or of several a list."""
        records = [record(each, self.pair) for each in self.pairs]
        return records[0] if self.pair else records


class FitsQuestion(Question):
    """Say whether a model fits a device, and how fast it is.

    For how many requests, too. With a device or a model alone: a line for each of the library; with
    neither: all pairs.
    """

    former: ClassVar[Mapping[str, str]] = {
        "--states": "a verb: `bankwise fit states DEVICE MODEL`",
        "--formats": "a verb: `bankwise fit formats MODEL DEVICE...`",
        "--tokens": "`--prompt` and `--output`", "--html": "`--save`",
        "--workload": "of `bankwise fit states`", "--mode": "of `bankwise fit states`",
        "--drafts": "of `bankwise fit states`", "--ratio": "of `bankwise fit states`",
        "--slots": "of `bankwise fit states`", "--sequences": "of `bankwise fit states`",
    }  # fmt: skip
    plugs: ClassVar[bool] = True

    names: Annotated[
        tuple[Text, ...], Several, Typed("DEVICE|MODEL", ("accelerators", "models"), argument=True)
    ] = ()
    """Shipped names or YAML files, in any order (default: all)."""
    prompt: Count = PROMPT
    """Tokens of a prompt."""
    output: Count = OUTPUT
    """Tokens of an answer."""
    limit: Count | None = None
    """Tokens of the longest answer that is allowed (default: 1024, or an answer's)."""
    weights: Annotated[WeightFormat, Typed("FORMAT")] | None = None
    """Number format of the weights (default: the model's)."""
    kv: Annotated[KvFormat, Typed("FORMAT")] | None = None
    """Number format of the KV (default: the model's)."""
    cards: Count = 1
    """Cards that share the model."""
    expert_parallel: ExpertPlacement = "none"
    """How whole experts are placed on these cards."""
    like: Annotated[VersionName, Typed("VERSION")] | None = None
    """Version of vLLM whose defaults and memory beside KV are taken."""
    gpu_memory_utilization: Annotated[float, Field(gt=0, le=1)] | None = None
    """Share of the memory that is used (default: 0.9, or that of --like)."""
    max_num_seqs: Count | None = None
    """Sequences that run at once (default: 256, or that of --like)."""
    simulate: bool = False
    """Simulates the memory, which takes some seconds and is kept after."""

    def answer(self) -> Fits:
        keys = ("prompt", "output", "limit", "weights", "kv", "cards", "expert_parallel", "like",
                "gpu_memory_utilization", "max_num_seqs")  # fmt: skip
        question = question_of({key: getattr(self, key) for key in keys})
        devices, models = of_library(list(self.names), list(self.set))
        pair = len(devices) == len(models) == 1
        if self.simulate:
            if not pair:
                raise DescriptionError("needs a DEVICE and a MODEL", "--simulate")
            (devices[0].described_as or devices[0]).memory  # noqa: B018 - raises where it is given
        simulate = self.simulate if pair else None
        return Fits([fit(d, m, question, simulate) for d in devices for m in models], pair)

    def section(self, findings: Fits) -> Section:
        pairs = findings.pairs
        if findings.pair:
            return sheet(pairs[0])
        devices, models = (
            {getattr(each, key).name for each in pairs} for key in ("device", "model")
        )
        if len(devices) > 1 < len(models):
            return matrix(pairs)
        return listing(pairs, "models" if len(devices) == 1 else "devices")
