"""Pipeline stages: consecutive layers of a model, the first with the embedding, the last with the
output head (Huang et al. 2019, "GPipe"; layers are dealt as by vLLM's `get_pp_indices`)."""

from __future__ import annotations

from typing import Any

from hwmodel.description.description import DescriptionError
from hwmodel.specs.number_format import number_format
from hwmodel.specs.transformer import TransformerSpec


class Stage(TransformerSpec):
    """Layers of a model with what lies before or behind them. Formats that differ by layer count
    from its own first layer (assumed)."""

    first: bool
    last: bool

    @property
    def head_weight_bytes(self) -> int:
        return super().head_weight_bytes if self.last else 0

    @property
    def embedding_weight_bytes(self) -> int:
        if not self.first:
            return 0
        rows = self.positions + self.vocabulary * (not self.tied_embeddings or not self.last)
        return number_format(self.weights).part("embedding").matrix_bits(rows, self.hidden) // 8

    @property
    def head_flops(self) -> int:
        return super().head_flops if self.last else 0


def dealt(layers: int, stages: int) -> tuple[int, ...]:
    """Layers of each stage: as even as may be, those left over to the stages before the last from
    behind."""
    each, left = divmod(layers, stages)
    return tuple(each + (0 < stages - 1 - stage <= left) for stage in range(stages))


def stages_of(model: TransformerSpec, stages: int) -> list[TransformerSpec]:
    """The stages of a model, or of its shard. Raises DescriptionError for fewer layers than stages,
    and for a stage whose layers keep no KV."""
    if stages == 1:
        return [model]
    if stages > model.layers:
        raise DescriptionError(
            f"stages: {model.name} has {model.layers} layers; expected at most as many stages, got "
            f"{stages}"
        )
    many = dealt(model.layers, stages)
    found: list[TransformerSpec] = [_stage(model, sum(many[:at]), many[at]) for at in range(stages)]
    if not all(stage.kv_layers for stage in found):
        raise DescriptionError(
            f"stages: with {stages} of {model.name} one has layers with a state alone, and no KV; "
            "expected fewer"
        )
    return found


def _stage(model: TransformerSpec, first: int, layers: int) -> Stage:
    """So many layers from the `first` on, each of the kind that it is in the model."""
    shape: dict[str, Any] = {name: getattr(model, name) for name in TransformerSpec.model_fields}
    for name in ("window", "state"):
        if (kinds := shape[name]) is not None:
            at = first % len(kinds.pattern)
            pattern = [*kinds.pattern[at:], *kinds.pattern[:at]]
            shape[name] = kinds.model_copy(update={"pattern": pattern})
    if shape["window"] is not None and not any(map(shape["window"].of, range(layers))):
        shape["window"] = None
    if (experts := model.experts) is not None:
        dense = experts.first_dense_layers - first
        dense = dense if dense >= 0 else dense % experts.period
        changes: dict[str, Any] = {"first_dense_layers": dense}
        if experts.on_cards is not None:
            changes["layers"] = layers
        shape["experts"] = experts.model_copy(update=changes) if dense < layers else None
    ends = {"first": not first, "last": first + layers == model.layers}
    return Stage.model_construct(**{**shape, "layers": layers, **ends})
