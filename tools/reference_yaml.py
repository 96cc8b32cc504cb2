"""`yaml.md` of the site and a page for each kind of description: every key, from the specs that
read them."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import core_schema

from hwmodel.description.units import EXAMPLES, SCALES
from sweeps.cli.schema import SPECS, docstrings_of
from sweeps.plan.measures import MEASURES, SERVING
from sweeps.plan.rules import RULES
from sweeps.plan.sweep_spec import BEST

Schema = dict[str, Any]
_IN_ALL = ("kind", "name", "summary", "sources")
"""Keys of every description, told once."""
_BEGINNING = """Everything that is simulated is described in a YAML file. A file begins with `kind`,
`name` and `summary`; those of hardware, links, models and measurements may name their `sources`.
Quantities have their unit. Any value may be written with who states it:
`{value: 18ns, source: datasheet, confidence: A, note: table 12}`, and a number without a public
source says `assumed`. An empty default means that nothing is set.

`bankwise check FILE` names each mistake with its file and line. `bankwise check --schema DIR`
writes JSON Schemas, with which an editor completes and checks the keys: put
`# yaml-language-server: $schema=DIR/sweep.json` into the first line of a file.""".splitlines()
_INTRODUCED = {
    "sweep": "A question to the simulator ([sweeps](sweeps.md)).",
    "study": "A search by Optuna ([studies](studies.md)).",
    "workload": "Lengths, arrivals and what prompts have in common ([sweeps](sweeps.md)).",
    "accelerator": "A card: which memory, how many channels, what reads it and what computes"
    " ([your-device](your-device.md)).",
    "memory": "A DRAM: its organisation, timings, commands and rules ([dram](dram.md)).",
    "kernels": "What kernels of a class of cards take beside bytes and FLOPs"
    " ([memory-time](memory-time.md)).",
    "link": "What a transfer of KV takes ([cluster](cluster.md)).",
    "model": "A transformer ([models](models.md)).",
    "format": "How numbers are stored ([models](models.md)).",
    "predictor": "A table of how a classifier of lengths errs ([allocators](allocators.md)).",
    "measurement": "Public measurements of memories and of steps ([trust](trust.md)).",
    "server": "Public measurements of servers ([calibrate](calibrate.md)).",
    "transfers": "Public measurements of transfers ([trust](trust.md)).",
}
"""The kinds in the order of the page: what a user writes first comes first."""
_SAID = {
    "kind": "Which of these descriptions it is.", "name": "The name that other files call it by.",
    "summary": "One line for lists.", "note": "A remark.", "source": "Who states it.",
    "sources": "Short names of what its numbers come from, used in `source:`.",
    "seed": "What is drawn follows from it.", "requests": "How many are counted.",
    "replications": "Independent repetitions, over which intervals are formed.",
    "device": "A shipped accelerator, or a file.", "model": "A shipped model, or a file.",
    "confidence": "A: a standard or data sheet, to D: a guess.",
}  # fmt: skip
"""Keys that mean the same wherever they stand without a docstring of their own."""


class _Told(GenerateJsonSchema):
    """Schemas with the docstrings of fields."""

    def model_schema(self, schema: core_schema.ModelSchema) -> Schema:
        found = super().model_schema(schema)
        spec: type[BaseModel] = schema["cls"]
        told = docstrings_of(spec)
        for name, item in found.get("properties", {}).items():
            text = told.get(name) or _SAID.get(name, "")
            found["properties"][name] = {**item, "description": text}
        return found


class _Section(NamedTuple):
    """A table: its heading, the schema of the mapping it is about."""

    path: str
    schema: Schema


class _Pages:
    """Sections in the order in which they are met, each mapping once on all pages."""

    def __init__(self) -> None:
        self.page = ""
        """The one that is written now."""
        self._at: dict[str, tuple[str, str]] = {}
        """A mapping's schema as text -> the page and the heading of its section."""
        self._waiting: list[_Section] = []
        self._defs: Schema = {}

    def describe(
        self, spec: type[BaseModel], path: str, known: Collection[str] = ()
    ) -> Iterator[str]:
        """The sections of a spec, but for its keys that are known, and of what stands in it."""
        found = spec.model_json_schema(schema_generator=_Told)
        self._defs = found.pop("$defs", {})
        found = dict(self._resolved(found))
        found["properties"] = {k: v for k, v in found["properties"].items() if k not in known}
        self._waiting = [_Section(path, found)]
        self._at[_text(found)] = (self.page, path)
        while self._waiting:
            yield from self._section(self._waiting.pop(0))

    def _section(self, section: _Section) -> Iterator[str]:
        named = _constant(section.schema)
        rows = [
            (name, item) for name, item in section.schema["properties"].items()
            if not (name in _IN_ALL and ("summary" in section.schema["properties"]))
            and not (named and "const" in item)
        ]  # fmt: skip
        if "." in section.path or ":" in section.path:
            yield from (f"## `{section.path}`", "")
        about = " ".join(section.schema.get("description", "").split("\n\n")[0].split())
        if about:
            yield from (_linked(about), "")
        if not rows:
            return
        required = section.schema.get("required", ())
        yield from ("| key | value | default | meaning |", "|---|---|---|---|")
        for name, item in rows:
            path = f"{section.path}.{name}"
            value = self._value(item, path)
            default = "required" if name in required else self._default(item)
            told = _linked(self._meaning(item))
            yield f"| `{name}` | {value} | {default} | {told.replace('|', chr(92) + '|')} |"
        yield ""

    def _meaning(self, item: Schema) -> str:
        """What a key is for; where nothing is said of it, what its mapping is."""
        told = " ".join(item.get("description", "").split())
        several = [self._resolved(each) for each in (item, *item.get("anyOf", ()))]
        inner = [each for each in several if "properties" in each]
        if told or len(inner) != 1:
            return told
        about = " ".join(inner[0].get("description", "").split())
        return about.partition(". ")[0].rstrip(".") + "." if about else ""

    def _resolved(self, item: Schema) -> Schema:
        return dict(self._defs[item["$ref"].rpartition("/")[2]]) if "$ref" in item else item

    def _value(self, item: Schema, path: str) -> str:
        """What may be written, in words; mappings become sections of their own."""
        if "$ref" in item:
            return self._mapping(self._resolved(item), path)
        if "properties" in item:
            return self._mapping(item, path)
        if "enum" in item:
            return ", ".join(f"`{_written(each)}`" for each in item["enum"])
        if "const" in item:
            return f"`{_written(item['const'])}`"
        for several in ("anyOf", "oneOf", "allOf"):
            if several in item:
                parts = [self._value(each, path) for each in item[several]]
                return " or ".join(dict.fromkeys(each for each in parts if each))
        return self._plain(item, path)

    def _plain(self, item: Schema, path: str) -> str:
        match item.get("type"):
            case "array" if isinstance(item.get("items"), dict):
                return f"list of {self._value(item['items'], path + '[]')}"
            case "array":
                parts = (self._value(each, path) for each in item.get("prefixItems", ()))
                return f"[{', '.join(parts)}]"
            case "object" if isinstance(item.get("additionalProperties"), dict):
                inner = self._value(item["additionalProperties"], f"{path}.NAME")
                return f"names, each with {inner or 'a value'}"
            case "object":
                return "mapping"
            case "string" if "examples" in item:
                return f"a quantity like `{item['examples'][0]}`"
            case "string":
                return "file" if "ya?ml" in item.get("pattern", "") else "text"
            case "boolean":
                return "`true`, `false`"
            case "integer" | "number" as kind:
                return _number(item, "whole number" if kind == "integer" else "number")
            case "null":
                return ""
        return "any value" if not item else ""

    def _mapping(self, found: Schema, path: str) -> str:
        if "properties" not in found:
            return self._value(found, path) if found else ""
        named = _constant(found)
        text = _text(found)
        if text not in self._at:
            heading = f"{path.removesuffix('[]')}: {named}" if named else path
            self._at[text] = (self.page, heading)
            self._waiting.append(_Section(heading, found))
        page, heading = self._at[text]
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        return f"[{named or 'mapping'}]({page * (page != self.page)}#{slug})"

    def _default(self, item: Schema) -> str:
        default = item.get("default")
        if default is None or isinstance(default, dict):
            return ""
        if isinstance(default, list):
            return f"`{json.dumps(default)}`" if default else ""
        if not isinstance(default, bool) and isinstance(default, int | float):
            for each in item.get("anyOf", [item]):
                if unit := _dimension(each):
                    return f"`{_quantity(float(default), unit)}`"
        return f"`{_written(default)}`" if default != "" else ""


def yaml_pages(written_by: str) -> dict[str, str]:
    """The page that lists the kinds, and that of each, by the names of their files."""
    pages = _Pages()
    text = {}
    for kind, about in _INTRODUCED.items():
        pages.page = f"yaml-{kind}.md"
        lines = [f"# {kind}", "", written_by, ""]
        lines += [f"{about} What all kinds have in common: [descriptions in YAML](yaml.md).", ""]
        lines += _sweep(pages) if kind == "sweep" else pages.describe(SPECS[kind], kind)
        text[pages.page] = "\n".join(lines).rstrip() + "\n"
    rows = [f"| [`{kind}`](yaml-{kind}.md) | {about} |" for kind, about in _INTRODUCED.items()]
    table = ["| kind | what it describes |", "|---|---|", *rows]
    lines = ["# Descriptions in YAML", "", written_by, "", *_BEGINNING, "", *table]
    return {"yaml.md": "\n".join(lines) + "\n", **text}


def _sweep(page: _Pages) -> Iterator[str]:
    """The keys of a sweep, those that a rule adds, and `base` by what is measured."""
    yield from page.describe(RULES[BEST], "sweep")
    common = RULES[BEST].model_fields.keys()
    for rule, spec in RULES.items():
        if spec.model_fields.keys() - common:
            yield from (f"## More keys of a sweep with `rule: {rule}`", "")
            yield from page.describe(spec, rule, common)
    for measure, experiment in MEASURES.items():
        yield from (f"## `base` of a sweep with `measure: {measure}`", "")
        yield from page.describe(experiment, "base" if measure == SERVING else measure)


def _constant(found: Schema) -> str:
    """The name by which options are chosen, where there is one."""
    for key in ("name", "kind"):
        item = found.get("properties", {}).get(key, {})
        if "const" in item and "summary" not in found["properties"]:
            return str(item["const"])
    return ""


def _text(found: Schema) -> str:
    """What tells one mapping from another: its spec's title and its keys."""
    return f"{found.get('title')} {' '.join(found['properties'])}"


def _written(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _number(item: Schema, kind: str) -> str:
    least = item.get("minimum", item.get("exclusiveMinimum"))
    most = item.get("maximum", item.get("exclusiveMaximum"))
    most = None if most is not None and most >= 2**31 - 1 else most
    above = "above" if "exclusiveMinimum" in item else "from"
    below = "below" if "exclusiveMaximum" in item else "to"
    return kind + (f" {above} {least}" if least is not None else "") + (
        f" {below} {most}" if most is not None else ""
    )  # fmt: skip


def _dimension(item: Schema) -> str:
    """The dimension of a quantity, from the example in its schema."""
    example = (item.get("examples") or [""])[0]
    for dimension, text in EXAMPLES.items():
        if text.split(" or ")[0] == example:
            return dimension
    return ""


def _quantity(value: float, dimension: str) -> str:
    """A number in the dimension's base unit, with the largest unit that leaves it whole or at least
    one."""
    units = sorted(SCALES[dimension].items(), key=lambda each: -each[1])
    if dimension == "size":
        units = [each for each in units if "i" in each[0] or each[0] == "B" or value % each[1] == 0]
    for unit, scale in units:
        if value >= scale and (dimension != "size" or value % scale == 0):
            return f"{value / float(scale):g}{unit}"
    return f"{value:g}{units[-1][0]}"


def _linked(text: str) -> str:
    """A docstring as the page has it: pages as links, None as what is left out."""
    text = re.sub(r"([;,]) None: ", r"\1 without it: ", text)
    text = re.sub(r"\bNone: ", "Without it: ", text)
    return re.sub(r"docs/([\w-]+)\.md", r"[\1.md](\1.md)", text)
