"""A question as one class: its fields are what is asked, `answer` finds, `section` says it.

From the class follow the verb with its help and checks (`sweeps.cli.asking`), the function of
`bankwise`, `--json`, and the page. A new one is a line of `sweeps/ask/questions.py`:

    class Pause(Question):
        \"\"\"Compare keeping, dropping and swapping the KV of a request that pauses.\"\"\"

        link: LinkName
        \"\"\"Device's link to its host.\"\"\"
        tokens: Count = 4096
        \"\"\"Tokens of the request.\"\"\"

        def answer(self) -> PauseFindings: ...
        def section(self, findings: PauseFindings) -> Section: ...

Findings are data whose names have units: dataclasses, named tuples, dicts and lists, which are the
JSON.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, ClassVar, Self, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from hwmodel.description.description import DescriptionError, nearest_name
from hwmodel.description.yaml_writer import plain, to_yaml_flow
from sweeps.sections.section import Section


@dataclass(frozen=True)
class Typed:
    """How a field is typed on a command line. `argument`: by its place, without a name;
    `completes`: folders of the library that a shell completes it from."""

    metavar: str = ""
    completes: tuple[str, ...] = ()
    argument: bool = False


def _several(value: Any) -> Any:
    """One value, values between commas, or several of these -> a tuple."""
    if isinstance(value, (str, int, float)):
        value = (value,)
    parts = (each.split(",") if isinstance(each, str) else [each] for each in value)
    return tuple(part for each in parts for part in each)


def _pair(value: Any) -> Any:
    """One value for both ends, or two; as text with a colon between."""
    parts = tuple(value.split(":")) if isinstance(value, str) else value
    parts = parts if isinstance(parts, (tuple, list)) else (parts,)
    if len(parts) > 2 or "" in parts:
        raise ValueError(f"expected one value, or two with a colon between; got {value!r}")
    return parts[0], parts[-1]


def _percent(value: Any) -> Any:
    """`25%` -> 25."""
    return value.removesuffix("%") if isinstance(value, str) else value


def _assigned(value: Any) -> tuple[str, ...]:
    """Name -> value, or texts `name=value`."""
    if isinstance(value, str):
        raise ValueError(f"expected a mapping or a list of texts; got {value!r}")
    if isinstance(value, Mapping):
        return tuple(f"{name}={to_yaml_flow(plain(given))}" for name, given in value.items())
    return tuple(value)


def _overrides(value: Any) -> tuple[str, ...]:
    """Dotted path -> value, or texts `dotted.path=value`, each path once."""
    found = _assigned(value)
    once(found)
    return found


def once(assignments: Iterable[str]) -> None:
    """Raise DescriptionError where one path is given twice: which of them counts would be a
    guess."""
    given: dict[str, str] = {}
    for text in assignments:
        path = text.partition("=")[0].removeprefix("base.")
        if path in given:
            raise DescriptionError(f"given twice, as {given[path]} and as {text}", f"--set {path}")
        given[path] = text


Several = BeforeValidator(_several)
"""Of a tuple: several values, which may stand between commas."""
Pair = BeforeValidator(_pair)
"""Of a tuple of two: of either end, one value for both."""
Text = Annotated[str, BeforeValidator(lambda value: value if value is None else str(value))]
Count = Annotated[int, Field(ge=1)]
LinkName = Annotated[Text, Typed("LINK", ("links",), argument=True)]
ModelName = Annotated[Text, Typed("MODEL", ("models",))]
DeviceName = Annotated[Text, Typed("DEVICE", ("accelerators", "memories"), argument=True)]
RunName = Annotated[Text, Typed("RUN", argument=True)]
SizeText = Annotated[Text, Typed("SIZE")]
CardName = Annotated[Text, Typed("DEVICE", ("accelerators",))]
FormatName = Annotated[str, Typed("FORMAT", ("formats",))]
Percent = Annotated[float, BeforeValidator(_percent), Field(ge=0, le=100), Typed("PERCENT")]
WorkloadName = Annotated[Text, Typed("WORKLOAD", ("workloads",))]
ServedDevice = Annotated[Text, Typed("DEVICE", ("accelerators",), argument=True)]
DeviceNames = Annotated[
    tuple[Text, ...], Several, Typed("DEVICE", ("accelerators",), argument=True)
]
SloText = Annotated[Text, Typed("ttft=2s,tpot=100ms")]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False), Typed("SECONDS")]
Amounts = Annotated[tuple[str, ...], BeforeValidator(_assigned), Typed("NAME=AMOUNT")]
"""Of each of several cards."""
Overrides = Annotated[tuple[str, ...], BeforeValidator(_overrides), Typed("PATH=VALUE")]


class Question(BaseModel):
    """Base of every question."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)
    former: ClassVar[Mapping[str, str]] = {}
    """Option of earlier versions -> what to type now."""
    needs: ClassVar[Mapping[str, str]] = {}
    """Field -> the field without which it would mean nothing."""
    apart: ClassVar[Iterable[tuple[str, str]]] = ()
    """Fields of which one at most is given."""
    sets: ClassVar[bool] = True
    """Whether there are described values to override."""
    plugs: ClassVar[bool] = False
    """Whether names are looked up that a plug-in may define."""

    set: Overrides = ()
    """Override a described value; repeatable."""

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """The question that these values ask. Raises DescriptionError with the option at fault."""
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            raise DescriptionError(*_mistake(cls, error.errors()[0])) from None

    @model_validator(mode="after")
    def _together(self) -> Self:
        kind = type(self)
        given = {
            name for name in self.model_fields_set
            if getattr(self, name) != kind.model_fields[name].default
        }  # fmt: skip
        if self.set and not kind.sets:
            raise DescriptionError("nothing is described here", "--set")
        for name, other in kind.needs.items():
            if name in given and other not in given:
                raise DescriptionError(f"needs {option(kind, other)}", option(kind, name))
        for one, other in kind.apart:
            if {one, other} <= given:
                raise DescriptionError(f"does not go with {option(kind, other)}", option(kind, one))
        return self

    def answer(self) -> Any:
        """What there is to find. Raises DescriptionError."""
        raise NotImplementedError

    def section(self, findings: Any) -> Section:
        """What `answer` found, in words, tables and charts."""
        raise NotImplementedError

    def write_files(self, findings: Any) -> list[Path]:
        """Write the files that fields name; returns them."""
        return []

    def failed(self, findings: Any) -> bool:
        """Whether something was looked for that should not be there: exit code 1."""
        return False


def option(question: type[Question], name: str) -> str:
    """What a field is called on the command line: `--both-ways`, `LINK`."""
    typed = typing_of(question, name)
    return typed.metavar if typed.argument else "--" + name.replace("_", "-")


def typing_of(question: type[Question], name: str) -> Typed:
    """How a field is typed: the last mark of its annotation."""
    field = question.model_fields[name]
    marks = [*_marks(field.annotation), *field.metadata]
    return next((each for each in reversed(marks) if isinstance(each, Typed)), Typed())


def in_order(question: type[Question]) -> list[str]:
    """Its fields as they are read: those by place, of which the last may take several values, what
    is needed, the others, `set`."""

    def place(name: str) -> tuple[bool, ...]:
        argument = typing_of(question, name).argument
        needed = question.model_fields[name].is_required()
        return not argument, argument and is_several(question, name), not needed, name == "set"

    found = (name for name in question.model_fields if name != "set" or question.sets)
    return sorted(found, key=place)


def is_several(question: type[Question], name: str) -> bool:
    """Whether a field takes any number of values."""
    core = core_of(question.model_fields[name].annotation)
    return get_origin(core) is tuple and Ellipsis in get_args(core)


def core_of(annotation: Any) -> Any:
    """A type without `None` beside it, and without marks."""
    if get_origin(annotation) in (Union, UnionType):
        annotation = next(each for each in get_args(annotation) if each is not type(None))
    return core_of(get_args(annotation)[0]) if get_origin(annotation) is Annotated else annotation


def _marks(annotation: Any) -> list[Any]:
    """Marks of a type that may be None."""
    if get_origin(annotation) not in (Union, UnionType):
        return []
    kinds = [each for each in get_args(annotation) if get_origin(each) is Annotated]
    return [mark for kind in kinds for mark in get_args(kind)[1:]]


def record(findings: Any) -> Any:
    """Findings in JSON's types, as `--json` prints them: their own `record()` where they have
    one; of an iterator a line each, as it comes."""
    if hasattr(findings, "record"):
        own = findings.record()
        return map(plain, own) if isinstance(own, Iterator) else plain(own)
    if is_dataclass(findings):
        return {each.name: record(getattr(findings, each.name)) for each in fields(findings)}
    if hasattr(findings, "_asdict"):
        return record(findings._asdict())
    if isinstance(findings, Mapping):
        return {str(key): record(value) for key, value in findings.items()}
    if isinstance(findings, (list, tuple)):
        return [record(each) for each in findings]
    return plain(findings)


_EXPECTED = {
    "int_parsing": "a whole number", "int_type": "a whole number",
    "int_from_float": "a whole number", "float_parsing": "a number", "float_type": "a number",
    "bool_parsing": "true or false", "string_type": "a text",
}  # fmt: skip


def _mistake(question: type[Question], item: Any) -> tuple[str, str]:
    """(What is wrong with a value, the option)."""
    where, value = item["loc"], item.get("input")
    name = option(question, str(where[0])) if where and where[0] in question.model_fields else ""
    if item["type"] == "extra_forbidden":
        known = nearest_name(str(where[0]), list(question.model_fields))
        return "unknown" + (f"; did you mean {known!r}?" if known else ""), str(where[0])
    if item["type"] == "missing":
        return "is needed", name
    limits = item.get("ctx", {})
    if item["type"] == "literal_error":
        text = f"expected {limits['expected']}"
    elif "ge" in limits:
        text = f"expected {limits['ge']:g} or more"
    elif "gt" in limits:
        text = f"expected a number above {limits['gt']:g}"
    elif "le" in limits or "lt" in limits:
        text = f"expected {limits.get('le', limits.get('lt')):g} at most"
    elif item["type"] in _EXPECTED:
        text = f"expected {_EXPECTED[item['type']]}"
    else:
        text = item["msg"].removeprefix("Value error, ")
    return text if item["type"] == "value_error" else f"{text}; got {value!r}", name
