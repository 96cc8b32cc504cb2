"""What the kernels of a program take beyond the time of the memory and of the FLOPs.

    step = host + sum over layers of (products x product + kernels x kernel + attention)
         + bytes of the weights / (weights x the memory's rate)   beside   padded FLOPs / rate
         + bytes of the experts that tokens pass through          beside   their padded FLOPs
         + bytes of the KV / (kv x the memory's rate)             beside   FLOPs of attention / rate
         + activations of a chunk / (weights x the memory's rate)

A kernel has a time of its own, in which it is launched and its first bytes arrive, and then reaches
a share of what the memory gives to one long stream. Both hang on the kind of card and on the
program far more than on the single card, so they are described by class (`yaml/kernels`), and a
device says its class and what is otherwise on it. The shape is that of microbenchmarks of matrix
products by size: a line through an offset (Vidur, arXiv 2405.05465, and the tables that
`yaml/kernels` names).
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, ValidationError

from hwmodel.description.description import DescriptionError, Document, Strict, checked, nearest
from hwmodel.description.library import find
from hwmodel.description.units import Nanoseconds
from hwmodel.description.yaml_reader import load
from hwmodel.specs.kernel_tables import is_file, kernel_tables

Rate = Annotated[float, Field(gt=0, le=1)]
"""A share of what the device is simulated, or given, to read or compute. Never above 1: kernels
that read faster than what a device loses for all requesters (`derate`) refute that loss, so that it
is the device that changes."""
Factor = Annotated[float, Field(ge=1)]
Count = Annotated[float, Field(ge=0)]


class KernelLaw(Strict):
    """The kernels of one program on one kind of card. Times are of one kernel."""

    host: Nanoseconds
    """Time of a step outside its kernels: scheduling, sampling, what the host does meanwhile."""
    product: Nanoseconds
    """Time of a matrix product beside its bytes or FLOPs: its launch, and until it streams."""
    kernel: Nanoseconds
    """Time of any other kernel: norms, rotation, activation, additions."""
    attention: Nanoseconds
    """Time of a layer's decode attention beside its bytes."""
    products: Count
    """Matrix products of a dense layer."""
    kernels: Count
    """Other kernels of a dense layer."""
    expert_products: Count
    """Matrix products of a layer with routed experts, its attention's included."""
    expert_kernels: Count
    """Other kernels of a layer with experts."""
    state_kernels: Count
    """Kernels of a layer with a state beyond those of a dense one."""
    weights: Rate
    """Share of the memory's rate at which products read weights."""
    kv: Rate
    """Share of the memory's rate at which decode attention reads KV."""
    attention_efficiency: Annotated[float, Field(gt=0, le=1)]
    """Share of the peak FLOPs that decode attention reaches."""
    converted_8: Rate
    """Times that rate, where weights of 8 bits are converted to be multiplied in more."""
    converted_4: Rate
    """Times that rate, where weights of fewer bits than 8 are converted."""
    narrow: Rate
    """Times the share of the peak that products of 8 and fewer bits reach, of those of 16."""
    experts_efficiency: Annotated[float, Field(gt=0, le=1)]
    """Times the rate of other products, at which those of routed experts compute."""
    tile: Annotated[int, Field(ge=1)]
    """Rows (tokens) of a tile of a product; rows are padded to whole tiles."""
    vector_rows: Annotated[int, Field(ge=0)]
    """Up to so many rows products are of a matrix and vectors, without tiles."""
    vector_columns: Annotated[int, Field(ge=1)]
    """Vectors that one pass over the weights serves."""
    vector_efficiency: Rate
    """Share of the peak FLOPs that those reach."""
    lone_expert_rows: Annotated[int, Field(ge=0)]
    """From two rows of a step to below so many each of them reads the weights of each of its
    experts, whoever else passes through that."""
    lone_experts: Rate
    """Times the rate at which other products read weights, at which they do."""
    chunk_products: Rate
    """Times `compute.prefill_efficiency`, at which products of a prompt's chunk compute."""
    chunk_attention: Rate
    """Times `compute.prefill_efficiency`, at which attention of a prompt's chunk computes."""
    chunk_keys: Count
    """Keys that each token of a chunk is computed with beyond those that it attends to: tiles that
    the causal mask cuts, and what a kernel takes to begin."""
    chunk_activations: Count
    """Times that the activations of a chunk which norms, rotation and activation functions read and
    write (`TransformerSpec.kernel_bytes`) are moved beside its products. 0: `prefill_efficiency` is
    of whole prompts."""
    beside_chunk: Factor
    """Times its own time that decode attention takes beside a prompt's chunk."""
    nccl: bool
    """Whether all-reduces of every size are NCCL's, where cards read each other's memory: the
    program has no kernels of its own for them."""
    spread_low: Annotated[float, Field(gt=0, le=1)]
    """Measured steps of this class are expected, 19 in 20, between `spread_low` and `spread_high`
    times what this law says; docs/trust.md says how many do."""
    spread_high: Factor
    """See `spread_low`."""


def _stated(schema: dict[str, Any]) -> None:
    """Of an accelerator's file only the class is asked; the rest comes from there."""
    schema["required"] = ["class"]


class Kernels(KernelLaw):
    """The law of an accelerator, resolved: its class's, and what it says itself."""

    model_config = ConfigDict(json_schema_extra=_stated)

    of: Annotated[str, Field(alias="class")]
    """A shipped class of `yaml/kernels`, or the path of one."""
    program: str
    """Whose kernels, one of the class's programs."""
    tables: str | None = None
    """Measured kernels instead of the law, where there are any: `vllm-0.24` and the like of the
    package aiconfigurator-core, or a CSV file. None: the law alone."""
    system: str | None = None
    """The card's name in that package."""


class KernelClass(Strict):
    """A class of cards, as `yaml/kernels/*.yaml` describes it."""

    kind: Literal["kernels"]
    name: str
    summary: str = ""
    sources: dict[str, str] = {}
    usual: str
    """The program where none is named."""
    law: dict[str, Any]
    """What its programs have in common."""
    programs: dict[str, dict[str, Any]]
    """Name -> what is otherwise in it."""

    @checked
    def _programs_are_laws(self) -> None:
        if self.usual not in self.programs:
            raise ValueError(f"usual: {nearest(self.usual, list(self.programs))}")
        for name, own in self.programs.items():
            try:
                KernelLaw.model_validate({**self.law, **own})
            except ValidationError as error:
                item = error.errors()[0]
                key = str(item["loc"][0])
                place = f"programs.{name}.{key}" if key in own else f"law.{key}"
                if item["type"] == "unknown_key":
                    hint = nearest(key, list(KernelLaw.model_fields))
                    raise ValueError(f"{place}: unknown key; {hint}") from None
                message = item["msg"].removeprefix("Value error, ")
                raise ValueError(f"{place}: {message}") from None


def complete_kernels(device: Document) -> None:
    """Fill `kernels` of an accelerator from its class and program, in place; values keep their
    sources. Raises DescriptionError where there is no such class or program; what is missing or
    unknown is left to `Kernels`."""
    stated = device.data.get("kernels")
    if not isinstance(stated, dict) or not isinstance(stated.get("class"), str):
        return
    _find_tables(device, stated)
    file = find("kernels", stated["class"], device.file)
    shipped = load(file)
    spec = shipped.build(KernelClass)
    program = stated.get("program", spec.usual)
    if program not in spec.programs:
        hint = nearest(str(program), list(spec.programs))
        raise device.error(
            f"{spec.name} has no program {program!r}; {hint}", ("kernels", "program")
        )
    device.put(("kernels", "program"), program, device.mark(("kernels",)))
    for key in KernelLaw.model_fields:
        if key in stated:
            continue
        for place in (("programs", program, key), ("law", key)):
            if shipped.get(place) is not None:
                device.graft(("kernels", key), shipped, place)
                break


def _find_tables(device: Document, stated: dict[str, Any]) -> None:
    """Look for the measured kernels that are named, beside the device's file too."""
    tables, system = stated.get("tables"), stated.get("system")
    if not isinstance(tables, str):
        return
    if is_file(tables) and not Path(tables).is_file() and device.file is not None:
        beside = Path(device.file).parent / tables
        if beside.is_file():
            tables = stated["tables"] = str(beside)
    try:
        kernel_tables(tables, system if isinstance(system, str) else None)
    except DescriptionError as error:
        if error.file is not None:
            raise
        raise device.error(error.message, ("kernels", "tables")) from None
