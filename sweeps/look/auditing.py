"""Whether a log of DRAM commands keeps every timing rule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from hwmodel.oracle.audit import Violated, audit_file
from hwmodel.oracle.command_log import read_csv
from hwmodel.specs.device import Device, load_device
from sweeps.ask.question import DeviceName, Question, Typed
from sweeps.report import timeline_file
from sweeps.report.timeline_file import ClocksText, TimelineFile
from sweeps.sections.chart import Spans
from sweeps.sections.formats import counted
from sweeps.sections.section import Block, Grid, Say, Section

SHOWN = 20
"""Violations that are said one by one."""


@dataclass(frozen=True)
class Audited:
    """`commands`: how many were checked; `chart`: of the timeline that is asked for."""

    device: Device
    commands: int
    violations: list[Violated]
    chart: Spans | None

    def record(self) -> list[dict[str, Any]]:
        """In JSON's types: what is illegal; cycles in CK, `channel` None where there is one."""
        return [each._asdict() for each in self.violations]


class AuditQuestion(Question):
    """Check a DRAM command log against every timing rule.

    Exit code 0: no violation; 1: violations found; 2: the input cannot be read.
    """

    needs: ClassVar[Mapping[str, str]] = {"clocks": "timeline"}
    plugs: ClassVar[bool] = True

    device: DeviceName
    """A shipped accelerator or memory, or a YAML file."""
    commands: Annotated[Path, Typed("COMMANDS.csv", argument=True)]
    """A log as `bankwise replay --commands` writes it."""
    timeline: TimelineFile | None = None
    """Draws the commands by bank over time: .svg, .png, .pdf or .html; .json or .json.gz for
    ui.perfetto.dev."""
    clocks: ClocksText | None = None
    """Clocks of the timeline, from and to (default: a few hundred after warm-up)."""

    def answer(self) -> Audited:
        window = timeline_file.window_of(self.timeline, self.clocks)
        device, chart = load_device(self.device, list(self.set)), None
        if self.timeline is not None:
            log = read_csv(device.memory, self.commands)
            chart = timeline_file.drawn(device, log, window)
        return Audited(device, *audit_file(device.memory, self.commands), chart)

    def section(self, findings: Audited) -> Section:
        many = len(findings.violations)
        first = findings.violations[:SHOWN]
        rows = [["" if each.channel is None else str(each.channel), f"{each.cycle:.12g}",
                 each.command, each.rule] for each in first]  # fmt: skip
        heads = ["channel", "cycle", "command", "rule"]
        blocks: list[Block] = [Grid("", heads, rows, text=True)] if rows else []
        if many > SHOWN:
            blocks.append(Say(f"... and {many - SHOWN:,} more"))
        name = findings.device.name
        said = f"{name}: {findings.commands:,} commands, {many:,} violations"
        blocks.append(Say(said, "verdict"))
        return Section(f"{name}: {self.commands.name}", blocks)

    def write_files(self, findings: Audited) -> list[Path]:
        if self.timeline is None or findings.chart is None:
            return []
        many = counted(len(findings.violations), "violation")
        lead = Say(f"{self.commands.name}: {many}.", "lead")
        timeline_file.write(self.timeline, findings.device, findings.chart, [lead])
        return [self.timeline]

    def failed(self, findings: Audited) -> bool:
        return bool(findings.violations)
