"""A description calibrated on a server's log: numbers, what the log does not tell, how the rest of
it agrees."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field

from hwmodel.description.description import DescriptionError
from hwmodel.description.library import names
from hwmodel.description.written import install
from hwmodel.description.yaml_writer import to_yaml, to_yaml_flow
from policies.serving.measured_server import MeasuredServer, load_server
from sweeps.analyse.statistics import Interval
from sweeps.ask.calibrate import PART, Calibrated, calibrate, server_of
from sweeps.ask.calibration_fit import NUMBERS, WORDS, Undetermined
from sweeps.ask.question import CardName, ModelName, Question, Text, Typed
from sweeps.run.store import write_atomically
from sweeps.sections.formats import between, listed
from sweeps.sections.section import Block, Grid, Say, Section

_UNITS = {each.name: each.unit for each in NUMBERS}


@dataclass(frozen=True)
class CalibratedServer:
    """What was found."""

    of: Calibrated

    def record(self) -> dict[str, Any]:
        """In JSON's types; numbers in the units of their settings."""
        found = self.of
        numbers = {
            name: {"described": found.described[name], "mean": each.mean, "low": each.low,
                   "high": each.high}
            for name, each in found.fit.numbers.items()
        }  # fmt: skip
        return {
            "log": str(found.log), "stretches": dict(zip(("fitted", "held_out"), found.windows,
                                                         strict=True)),
            "numbers": numbers, "undetermined": [each._asdict() for each in found.fit.undetermined],
            "step_error": {"before": found.fit.before, "after": found.fit.after},
            "held_out": [vars(each) for each in found.validated], "settings": found.settings(),
        }  # fmt: skip


class CalibrateQuestion(Question):
    """Calibrate a description on a server's log.

    Efficiency and overheads, with intervals; the rest of the log validates. --set
    serving.kv_tokens=41392 and so on say how the server was started.
    """

    former: ClassVar[Mapping[str, str]] = {
        "--memory": f"`bankwise measure`; {install('bankwise-measure')}"
    }

    log: Annotated[Text, Typed("LOG", ("servers",), argument=True)]
    """A server's log (docs/calibrate.md), or a described server that names one."""
    device: CardName | None = None
    """Accelerator that a log's server ran on."""
    model: ModelName | None = None
    """Model that a log's server ran."""
    part: Annotated[float, Field(ge=0.1, le=0.9)] = PART
    """Share of the log that is fitted, the first in time."""
    out: Annotated[Path, Typed("FILE")] | None = None
    """File to which the calibrated server is written, for `bankwise validate`."""

    def answer(self) -> CalibratedServer:
        return CalibratedServer(calibrate(self._server(), self.part))

    def _server(self) -> MeasuredServer:
        """Raises DescriptionError."""
        if self.log in names("servers") or self.log.endswith((".yaml", ".yml")):
            if self.device or self.model or self.set:
                raise DescriptionError("its description says what it ran", self.log)
            return load_server(self.log)
        if not Path(self.log).is_file():
            raise DescriptionError("no such file, or described server", self.log)
        if self.device is None or self.model is None:
            missing = "--device" if self.device is None else "--model"
            raise DescriptionError(f"a log needs {missing}, which it does not name", self.log)
        return server_of(Path(self.log), self.device, self.model, self.set)

    def section(self, findings: CalibratedServer) -> Section:
        return sheet(findings.of)

    def write_files(self, findings: CalibratedServer) -> list[Path]:
        if self.out is None:
            return []
        write_atomically(self.out, overlay(findings.of))
        return [self.out]


def overlay(calibrated: Calibrated) -> str:
    """The YAML of the server under what was found, with the intervals."""
    told = [f"# {WORDS[name]}: {_interval(name, each)}, described as"
            f" {_value(name, calibrated.described[name])}"
            for name, each in calibrated.fit.numbers.items()]  # fmt: skip
    told += [f"# {text}" for text in _undetermined(calibrated.fit.undetermined)]
    log, many = calibrated.log.name, calibrated.windows[0]
    head = f"# bankwise calibrate, on the first {many} stretches of {log}"
    return "\n".join([head, *told, to_yaml(calibrated.overlay())])


def sheet(calibrated: Calibrated) -> Section:
    """The numbers, what the log does not tell, and the part that was not fitted."""
    numbers = [
        [WORDS[name], _value(name, calibrated.described[name]), _interval(name, each)]
        for name, each in calibrated.fit.numbers.items()
    ]
    fitted, rest = calibrated.windows
    how = "simulated and measured alike" if calibrated.simulated else "as the log has them"
    lead = (
        f"{fitted} stretches of steps of {calibrated.log.name}, {how}: the median error of a step"
        f" goes from {calibrated.fit.before:.1%} to {calibrated.fit.after:.1%}."
    )
    if not numbers:
        lead = (
            f"The log fixes no number: {fitted} stretches of {calibrated.log.name} are too alike."
        )
    held = [
        [each.what, *(f"{value:,.4g}" for value in (each.measured, each.before, each.after)),
         *(_error(each.measured, value) for value in (each.before, each.after))]
        for each in calibrated.validated
    ]  # fmt: skip
    columns = ["", "measured", "as described", "calibrated", "error before", "after"]
    if not calibrated.simulated:
        held, columns = [[row[0], *row[2:4]] for row in held], ["", *columns[2:4]]
    sets = " ".join(f"--set {path}={to_yaml_flow(value)}"
                    for path, value in calibrated.settings().items())  # fmt: skip
    blocks: list[Block] = [
        Say(lead, "lead"),
        Grid("", ["number", "described", "calibrated (95 % CI)"], numbers),
        *map(Say, _undetermined(calibrated.fit.undetermined)),
        Grid(f"The rest of the log, {rest} stretches that were not fitted", columns, held),
        Say(f"In other commands: {sets}" if sets else "Nothing to set."),
    ]
    return Section(calibrated.server.spec.name, [b for b in blocks if getattr(b, "rows", True)])


def _error(measured: float, value: float) -> str:
    return f"{value / measured - 1:+.1%}" if measured else "–"


def _value(name: str, value: float) -> str:
    return f"{_number(value)} {_UNITS[name]}".strip()


def _number(value: float) -> str:
    return f"{float(f'{value:.3g}'):,g}"


def _interval(name: str, found: Interval) -> str:
    return between(found, _number, f" {_UNITS[name]}" if _UNITS[name] else "")


def _undetermined(left: Sequence[Undetermined]) -> Iterator[str]:
    """Why numbers stay as described."""
    for other in dict.fromkeys(each.other for each in left):
        names = []
        for each in (each for each in left if each.other == other):
            would = "" if each.instead is None else f" (or {_value(each.name, each.instead)})"
            names.append(f"{WORDS[each.name]} {_value(each.name, each.described)}{would}")
        told = f"does not tell it from the {WORDS[other]}" if other else "says nothing of it"
        instead = "; the number in brackets would explain the log instead of that" if other else ""
        yield f"Left as described, as this log {told}: {listed(names)}{instead}."
