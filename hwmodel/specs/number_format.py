"""Formats that weights and KV are stored in: bits of an element, scales, what stays wider, and the
type they are computed in.

`yaml/formats/*.yaml` hold one each. A scale belongs to a block of elements along a row: of a weight
matrix (a row an output, as checkpoints store it), or of K or V, whose rows are the vectors of one
token and head. Scales lie in the stream: every read of the numbers reads them too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from hwmodel.description.description import DescriptionError, Document, Strict, checked
from hwmodel.description.files import by_contents
from hwmodel.description.library import find, names
from hwmodel.description.yaml_reader import load
from hwmodel.specs.kv_format import KvStructure, Quantising

Count = Annotated[int, Field(ge=1)]
Bits = Annotated[int, Field(ge=0, le=4096)]
Stores = Literal["weights", "kv"]
ComputeType = Literal["fp32", "fp16", "bf16", "fp8", "int8", "fp4"]
COMPUTE_BITS = {"fp32": 32, "fp16": 16, "bf16": 16, "fp8": 8, "int8": 8, "fp4": 4}
"""Bits of a number of each type."""
"""Types that an accelerator may have a peak for."""
Matrix = Literal["q", "k", "v", "o", "q_a", "q_b", "kv_a", "kv_b", "gate", "up", "down"]
"""The matrices of a layer: attention's projections, latent attention's down (`a`) and up (`b`), and
those of the MLP."""
Part = Literal[Matrix, "embedding", "head", "vectors"]
"""What a model stores: matrices, tables, and `vectors`, its norms, biases and routers."""


class Matrices(NamedTuple):
    """Matrices of one shape and format, (rows: outputs, columns: inputs)."""

    part: Part
    rows: int
    columns: int
    many: int = 1
    active: int = 1
    """How many of them a token is multiplied with."""


class NumberFormat(Strict):
    """One format, as `yaml/formats/*.yaml` describes it."""

    kind: Literal["format"]
    name: str
    summary: str
    sources: dict[str, str] = {}
    stores: Annotated[list[Stores], Field(min_length=1)]
    """Weights, KV or both."""
    bits: Annotated[int, Field(ge=1, le=64)]
    """Of an element, without scales."""
    head_dim: Count | None = None
    """The only vectors of KV that have this form. None: any."""
    block: Count | Literal["row"] | None = None
    """Consecutive elements of a row that share scales; `row`: all of them. None: no scales, or one
    a tensor."""
    block_rows: Count = 1
    """Rows that a block spans."""
    scale_bits: Bits = 0
    """Scales of a block."""
    zero_bits: Bits = 0
    """Zero points, or minima, of a block."""
    tensor_bits: Bits = 0
    """Scale of a whole matrix."""
    scales: Literal["inline", "beside"] = "inline"
    """`inline`: a block is its elements and its scales, the last one of a row whole; `beside`: a
    tensor of scales after each matrix, rows of both in whole bytes."""
    parts: dict[Part, str] = {}
    """What of the weights is stored in another format, by its name."""
    parts_in: Literal["all", "outer_and_thirds"] = "all"
    """Layers whose matrices `parts` applies to; `outer_and_thirds`: the first and the last eighth
    and every third between, llama.cpp's mixes."""
    kv: KvStructure | None = None
    """What KV has beside the numbers and scales of each head."""
    quantising: Quantising = Quantising()
    """Of KV, by cores; where `compute.quantiser` is `dma` it costs nothing."""
    compute: ComputeType = "fp16"
    """Type of the matrix products with such weights where the device has a peak for it; else
    elements are converted to fp16 as they are loaded."""

    @checked
    def _consistent(self) -> None:
        if self.block is None and (self.scale_bits or self.zero_bits or self.block_rows > 1):
            raise ValueError("block: expected one beside scale_bits, zero_bits or block_rows")
        if self.block is not None and not self.scale_bits:
            raise ValueError("scale_bits: expected the bits of a block's scales")
        if self.scales == "inline" and self.block_rows > 1:
            raise ValueError("scales: blocks of several rows have theirs beside")
        if "kv" in self.stores and (self.tensor_bits or self.scales == "beside"):
            raise ValueError("scales: those of KV are inline, beside their vector")
        if "kv" not in self.stores and (self.kv or self.quantising != Quantising()):
            raise ValueError("stores: expected kv beside kv and quantising")
        for part, name in self.parts.items():
            try:
                find("formats", name)
            except DescriptionError as error:
                raise ValueError(f"parts.{part}: {error}") from None

    def matrix_bits(self, rows: int, columns: int) -> int:
        """Bits of a matrix with its scales."""
        if self.block is None:
            return rows * columns * self.bits + self.tensor_bits
        block = columns if self.block == "row" else self.block
        blocks, shared = -(-columns // block), self.scale_bits + self.zero_bits
        if self.scales == "inline":
            each, beside = blocks * (block * self.bits + shared), 0
        else:
            each, beside = (
                columns * self.bits,
                -(-rows // self.block_rows) * _whole(blocks * shared),
            )
        return rows * _whole(each) + beside + self.tensor_bits

    def vector_bytes(self, length: int) -> int:
        """Bytes of K (or V) of one token and head, scales included. Raises DescriptionError where
        they are not whole blocks, or not whole bytes."""
        block = length if self.block in ("row", None) else int(self.block or 1)
        if self.head_dim not in (None, length):
            raise DescriptionError(
                f"{self.name} stores vectors of {self.head_dim} numbers; head_dim is {length}",
                path="kv",
            )
        if length % block:
            raise DescriptionError(
                f"{self.name} has blocks of {block} numbers, which do not divide head_dim {length}",
                path="kv",
            )
        bits = length * self.bits + length // block * (self.scale_bits + self.zero_bits)
        if bits % 8:
            raise DescriptionError(
                f"{self.name} takes {bits} bits for head_dim {length}; expected whole bytes",
                path="kv",
            )
        return bits // 8

    def apart_bytes(self, width: int) -> float:
        """Mean bytes of K (or V) of a token beside `vector_bytes` of its heads, `width` numbers in
        all: scales in whole bytes, and sparse entries."""
        if self.kv is None:
            return 0.0
        return math.ceil(self.kv.scale_bits(width) / 8) + self.kv.sparse_bits(width) / 8

    def effective_bits(self, heads: int, head_dim: int) -> float:
        """Mean bits of a number of K or V of so many heads, with all that belongs to it."""
        width = heads * head_dim
        inline = 8 * heads * self.vector_bytes(head_dim)
        apart = 0.0 if self.kv is None else self.kv.scale_bits(width) + self.kv.sparse_bits(width)
        return (inline + apart) / width

    def part(self, part: Part) -> NumberFormat:
        """The format of a part that is not the format's own, or this one."""
        return number_format(self.parts[part]) if part in self.parts else self

    def applies(self, layer: int, layers: int) -> bool:
        """Whether the matrices of a layer have the formats of `parts` (llama.cpp,
        `use_more_bits`)."""
        eighth, last = layers // 8, 7 * layers // 8
        outer = layer < eighth or layer >= last
        return self.parts_in == "all" or outer or (layer - eighth) % 3 == 2


def _whole(bits: int) -> int:
    """Bits of the whole bytes that these take."""
    return -(-bits // 8) * 8


@by_contents
def number_format(name_or_path: str) -> NumberFormat:
    """A shipped format by name, or a YAML file. Raises DescriptionError."""
    document = load(find("formats", name_or_path))
    if document.data.get("kind") != "format":
        raise document.error(f"expected kind: format; got {document.data.get('kind')!r}", ("kind",))
    return document.build(NumberFormat)


def documents(used: Iterable[str]) -> Iterator[tuple[str, Document]]:
    """The descriptions of these formats and of those that they name, each once."""
    every = [name for each in used for name in (each, *number_format(each).parts.values())]
    for name in dict.fromkeys(every):
        yield name, load(find("formats", name))


@dataclass(frozen=True)
class FormatOf:
    """A field type: the name of a format that stores this, or the path of one."""

    stores: Stores

    def known(self) -> list[str]:
        """The shipped ones."""
        return [name for name in names("formats") if self.stores in number_format(name).stores]

    def _check(self, name: str) -> str:
        try:
            stores = number_format(name).stores
        except DescriptionError as error:
            raise PydanticCustomError("format", "{why}", {"why": str(error)}) from None
        if self.stores not in stores:
            why = {"of": stores[0], "not": self.stores, "known": ", ".join(self.known())}
            raise PydanticCustomError(
                "format", "expected a format of {not}, and this is one of {of}; known: {known}", why
            )
        return name

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        file = {"type": "string", "pattern": r"\.ya?ml$"}
        return {"anyOf": [{"enum": self.known()}, file]}


WeightFormat = Annotated[str, FormatOf("weights")]
KvFormat = Annotated[str, FormatOf("kv")]
