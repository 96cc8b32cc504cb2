"""What a trace of addresses, or a server's block tables, reaches on a device, and why not more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from hwmodel.description.description import DescriptionError
from hwmodel.measure.bank_map import BankMap
from hwmodel.measure.open_loop import LogSink
from hwmodel.measure.replay import replay
from hwmodel.oracle.command_log import CommandLog
from hwmodel.specs.device import Device, load_device
from policies.serving.server_log import is_block_log
from sweeps.ask.logged_kv_read import WHOLE, BlockReplay, replay_blocks, totals
from sweeps.ask.low_bandwidth import explain
from sweeps.ask.question import Count, DeviceName, ModelName, Question, SizeText, Typed, option
from sweeps.look import replay_section
from sweeps.look.low_bandwidth_section import reached
from sweeps.report import timeline_file
from sweeps.report.command_timeline import Kept
from sweeps.report.timeline_file import ClocksText, TimelineFile
from sweeps.sections.chart import Spans
from sweeps.sections.section import Section

_DOCS = "docs/calibrate.md"
OF_TRACES = ("channel", "commands", "at_once", "explain", "banks", "timeline", "clocks")
OF_TABLES = ("model", "every", "whole")


@dataclass(frozen=True)
class Replayed:
    """A trace on a device; `chart`: of the timeline that is asked for."""

    device: Device
    figures: dict[str, Any]
    chart: Spans | None

    def record(self) -> dict[str, Any]:
        """The figures."""
        return self.figures


class BlocksReplayed:
    """Logged decode steps on a device, each simulated when it is first asked for."""

    def __init__(self, replay: BlockReplay, steps: Iterable[dict[str, Any]]) -> None:
        self.replay = replay
        self._left, self._done = iter(steps), list[dict[str, Any]]()

    def steps(self) -> Iterator[dict[str, Any]]:
        """What each comes to."""
        yield from list(self._done)
        for step in self._left:
            self._done.append(step)
            yield step

    def record(self) -> Iterator[dict[str, Any]]:
        """A line a step as it comes, then what they come to."""
        yield from self.steps()
        yield {"total": totals(self.steps()).record()}


class ReplayQuestion(Question):
    """Simulate an address trace or a server's block tables.

    --explain takes causes of low bandwidth away, one after another, and simulates again
    (docs/drive-a-memory.md). Of block tables each step's KV is read at its blocks' addresses, and
    again with each request in contiguous memory.
    """

    needs: ClassVar[Mapping[str, str]] = {"clocks": "timeline"}
    plugs: ClassVar[bool] = True

    device: DeviceName
    """A shipped accelerator or memory, or a YAML file."""
    trace: Annotated[Path, Typed("TRACE", argument=True)]
    """Text, also gzip, of one of these forms: `R 0x1f40`; CSV whose first line names its columns,
    `time_ns,op,address,size` (time_ns or time_ps, and size, may lack); `LD 0x1f40` and
    `R 0,0,1,2,100,32` (Ramulator); `0x1f40 READ 12` (DRAMsim3); `r,8000,64,4000` (gem5). Or .npz
    with address, write and, if it likes, size, picosecond. Accesses arrive at its times, if it has
    any, and are a burst without a size. Or a server's block tables, JSON lines
    (docs/calibrate.md)."""
    channel: bool = False
    """Addresses are those of one channel; simulate that channel only."""
    commands: Path | None = None
    """Write every DRAM command as CSV."""
    at_once: bool = False
    """Leave out the times of the trace, if it has any."""
    explain: bool = False
    """Say why it is below the peak, and which change helps most."""
    banks: bool = False
    """Add a map of activations and conflicts, channel by bank."""
    timeline: TimelineFile | None = None
    """Draw the commands by bank over time: .svg, .png, .pdf or .html; .json or .json.gz for
    ui.perfetto.dev."""
    clocks: ClocksText | None = None
    """Clocks of the timeline, from A to B (default: a few hundred after warm-up)."""
    model: ModelName | None = None
    """Model of block tables (default: that of their header)."""
    every: Count | None = None
    """Replay every N-th step of block tables only."""
    whole: SizeText | None = None
    """Largest layer of block tables simulated in full; of a larger one a window (default:
    64MiB)."""

    def answer(self) -> Replayed | BlocksReplayed:
        tables = is_block_log(self.trace)
        for name in OF_TRACES if tables else OF_TABLES:
            if getattr(self, name) not in (None, False):
                why = "does not go with" if tables else "needs"
                raise DescriptionError(f"{why} block tables ({_DOCS})", option(type(self), name))
        device = load_device(self.device, list(self.set))
        if not tables:
            return self._replayed(device)
        whole = self.whole or WHOLE
        return BlocksReplayed(
            *replay_blocks(device, self.trace, self.model, self.every or 1, whole)
        )

    def _replayed(self, device: Device) -> Replayed:
        window = timeline_file.window_of(self.timeline, self.clocks)
        kept = None if self.timeline is None else Kept(device.memory, window)
        counted = None
        if self.banks:
            counted = BankMap(device.memory, 1 if self.channel else device.channels)
        figures = replay(
            device, self.trace, single_channel=self.channel, commands=self.commands,
            at_once=self.at_once, log=_sink(kept, counted),
        )  # fmt: skip
        if counted is not None:
            figures["banks"] = {
                "activations": counted.activations.tolist(), "conflicts": counted.conflicts.tolist()
            }  # fmt: skip
        chart = None if kept is None else timeline_file.drawn(device, kept.logs(), window)
        if self.explain:
            figures["explanation"] = explain(
                device, self.device, list(self.set), self.trace, figures["requests"],
                single_channel=self.channel, at_once=self.at_once,
            )  # fmt: skip
        return Replayed(device, figures, chart)

    def section(self, findings: Replayed | BlocksReplayed) -> Section:
        if isinstance(findings, BlocksReplayed):
            return replay_section.logged(findings.replay, [*findings.steps()])
        return replay_section.trace(findings.device, findings.figures)

    def write_files(self, findings: Replayed | BlocksReplayed) -> list[Path]:
        if self.timeline is None or isinstance(findings, BlocksReplayed):
            return []
        assert findings.chart is not None
        above = reached(self.trace.name, findings.figures)
        timeline_file.write(self.timeline, findings.device, findings.chart, above)
        return [self.timeline]


def _sink(*takers: LogSink | None) -> LogSink | None:
    """What hands commands to each of these; None where there are none."""
    there = [each for each in takers if each is not None]
    if len(there) < 2:
        return there[0] if there else None

    def each(channel: int, log: CommandLog) -> None:
        for taker in there:
            taker(channel, log)

    return each
