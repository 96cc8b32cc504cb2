"""Pipeline stages: consecutive layers of a model, the first with the embedding, the last with the
output head (Huang et al. 2019, "GPipe"; layers are dealt as by vLLM's `get_pp_indices`)."""

from __future__ import annotations

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
    """The stages of a model, or of its shard. Raises DescriptionError for fewer layers than stages
    and for layers that differ."""
    if stages == 1:
        return [model]
    if stages > model.layers:
        raise DescriptionError(
            f"stages: {model.name} has {model.layers} layers; expected at most as many stages, got "
            f"{stages}"
        )
    if len(model.kinds) > 1 or model.experts is not None or model.state is not None:
        raise DescriptionError(
            f"stages: the layers of {model.name} differ or have experts or states, of which stages "
            "are not modelled; expected dense layers that are all alike"
        )
    shape = model.model_dump()
    return [
        Stage(**{**shape, "layers": many, "first": stage == 0, "last": stage == stages - 1})
        for stage, many in enumerate(dealt(model.layers, stages))
    ]
