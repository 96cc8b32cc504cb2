"""The questions, by their verbs. Names alone: importing this loads nothing heavy."""

from __future__ import annotations

import ast
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sweeps.ask.question import Question

QUESTIONS = {
    "fit": "sweeps.ask.fits:FitsQuestion",
    "fit devices": "sweeps.ask.fit_devices:FitDevicesQuestion",
    "fit states": "sweeps.ask.fit_states:FitStatesQuestion",
    "fit formats": "sweeps.ask.fit_formats:FitFormatsQuestion",
    "size": "sweeps.ask.size:SizeQuestion",
    "size users": "sweeps.ask.size:SizeUsersQuestion",
    "size batch": "sweeps.ask.size:SizeBatchQuestion",
    "size memory": "sweeps.ask.size_memory:SizeMemoryQuestion",
    "size confirm": "sweeps.ask.size_confirm:SizeConfirmQuestion",
    "size settings": "sweeps.ask.size_settings:SizeSettingsQuestion",
    "size pools": "sweeps.ask.size_pools:SizePoolsQuestion",
    "memory": "sweeps.ask.memory_patterns:MemoryQuestion",
    "memory latency": "sweeps.ask.memory_latency:LatencyQuestion",
    "memory curve": "sweeps.ask.memory_curve:CurveQuestion",
    "memory refresh": "sweeps.ask.memory_refresh:RefreshQuestion",
    "memory layouts": "sweeps.ask.memory_layouts:LayoutsQuestion",
    "replay": "sweeps.look.replaying:ReplayQuestion",
    "explain": "sweeps.look.explaining:ExplainQuestion",
    "explain next": "sweeps.look.explaining:ExplainNextQuestion",
    "report figure": "sweeps.look.report_figures:ReportFigureQuestion",
    "report explore": "sweeps.look.report_figures:ReportExploreQuestion",
    "compare": "sweeps.look.comparing:CompareQuestion",
    "calibrate": "sweeps.ask.calibrated:CalibrateQuestion",
    "audit": "sweeps.look.auditing:AuditQuestion",
    "validate": "sweeps.ask.validate:ValidateQuestion",
    "validate servers": "sweeps.ask.validate_servers:ServersQuestion",
    "validate schedules": "sweeps.ask.validate_schedules:SchedulesQuestion",
    "transfer": "sweeps.ask.kv_transfer:TransferQuestion",
    "transfer restore": "sweeps.ask.restore:RestoreQuestion",
    "transfer pause": "sweeps.ask.pause:PauseQuestion",
}
"""Verb -> module:class. In Python it is the function of this name, with `_` between words."""


def question(verb: str) -> type[Question]:
    """The class of a verb; loads what it needs."""
    module, _, name = QUESTIONS[verb].partition(":")
    found: type[Question] = getattr(import_module(module), name)
    return found


@cache
def does(verb: str) -> str:
    """The first sentence of a question's docstring, from its file: nothing is loaded."""
    module, _, name = QUESTIONS[verb].partition(":")
    spec: Any = find_spec(module)
    tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    own = next(each for each in tree.body if isinstance(each, ast.ClassDef) and each.name == name)
    return " ".join((ast.get_docstring(own) or "").split()).partition(". ")[0].rstrip(".") + "."


def words_of(arguments: list[str]) -> int:
    """How many of the first words are a verb: 2, 1, or 0."""
    return next((n for n in (2, 1) if " ".join(arguments[:n]) in QUESTIONS), 0)
