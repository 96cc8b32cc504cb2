"""Traces of agents: sessions whose next prompt is sent when a tool has run.

LLMServingSim's JSON lines (github.com/casys-kaist/LLMServingSim, README: dataset format): a session
on each line, `session_id`, `arrival_time_ns` and `sub_requests`, each of these with `input_toks`,
`output_toks` and `tool_duration_ns`, from its answer to the next one's prompt. A line without
`sub_requests`, with `input_toks` and `output_toks` of its own, is a request alone. Token ids are
not read. What a prompt shares with the one before follows from lengths (assumed): all of it and
its answer, where every prompt of the session has room for that; else the prompts of the session
were rewritten, and of two neighbours the shorter prompt is what both begin with.
"""

from __future__ import annotations

import math
from array import array
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from policies.requests.logged_requests import json_object


class SessionColumns(NamedTuple):
    """n turns in the file's order, those of a session next to each other.

    begin_s: float64 (n,), seconds from the first session to the turn's, non-decreasing. prompt,
    output: int64 (n,). pause_s: float64 (n,), from the last turn's answer, nan for first turns.
    session: int64 (n,), from 0. goes_on: bool (n,), whether prompts of its session hold all before.
    dropped: turns with an empty answer, left out.
    """

    begin_s: NDArray[np.float64]
    prompt: NDArray[np.int64]
    output: NDArray[np.int64]
    pause_s: NDArray[np.float64]
    session: NDArray[np.int64]
    goes_on: NDArray[np.bool_]
    dropped: int


class AgentSessions:
    """A trace. `line`: the one that is being read."""

    def __init__(self, text: str, max_tokens: int) -> None:
        self._text, self._most = text, max_tokens
        self.line = 1

    @staticmethod
    def known(text: str) -> bool:
        """Whether the text is such a trace."""
        return '"sub_requests"' in text or ('"input_toks"' in text and '"arrival_time_ns"' in text)

    def read(self) -> SessionColumns:
        """All turns. Raises ValueError about the line being read."""
        rows = array("d")
        dropped, before, count = 0, -math.inf, 0
        for number, line in enumerate(self._text.split("\n"), 1):
            self.line = number
            if not line.strip():
                continue
            begin, turns = self._session(line)
            if begin < before:
                raise ValueError(f"arrival_time_ns {begin:.0f} is before the line above it; sort")
            before = begin
            kept = [turn for turn in turns if turn[1]]
            dropped += len(turns) - len(kept)
            whole = [prompt + output for prompt, output, _ in kept]
            goes_on = all(turn[0] >= held for turn, held in zip(kept[1:], whole, strict=False))
            for turn in _following(turns):
                rows.extend((begin, *turn, count, goes_on))
            count += bool(kept)
        if not rows:
            raise ValueError("no requests")
        start, prompt, output, pause_s, session, on = np.array(rows).reshape(-1, 6).T.copy()
        tokens = prompt.astype(np.int64), output.astype(np.int64)
        numbers = session.astype(np.int64), on.astype(np.bool_)
        return SessionColumns((start - start[0]) / 1e9, *tokens, pause_s, *numbers, dropped)

    def _session(self, line: str) -> tuple[float, list[tuple[int, int, float]]]:
        """(arrival, ns; prompt, output and seconds to the next prompt of each turn)."""
        if (item := json_object(line)) is None:
            raise ValueError("expected a JSON object with arrival_time_ns and sub_requests")
        turns = item.get("sub_requests", [item])
        if not isinstance(turns, list) or not all(isinstance(each, dict) for each in turns):
            raise ValueError("sub_requests: expected a list of objects")
        if not turns:
            raise ValueError("sub_requests: expected at least one")
        begin = _nanoseconds(item, "arrival_time_ns")
        return begin, [self._turn(turn) for turn in turns]

    def _turn(self, turn: dict[str, Any]) -> tuple[int, int, float]:
        prompt, output = self._tokens(turn, "input_toks", 1), self._tokens(turn, "output_toks", 0)
        return prompt, output, _nanoseconds(turn, "tool_duration_ns", 0) / 1e9

    def _tokens(self, item: dict[str, Any], key: str, least: int) -> int:
        value = item.get(key)
        if type(value) is not int or not least <= value <= self._most:
            raise ValueError(f"{key}: expected {least} to {self._most} tokens; got {value!r}")
        return int(value)


def _following(turns: list[tuple[int, int, float]]) -> list[tuple[int, int, float]]:
    """The turns that have an answer, each with its pause: since the answer before, also through
    turns that have none; nan for the first."""
    found: list[tuple[int, int, float]] = []
    pause_s = 0.0
    for prompt, output, tool_s in turns:
        if output:
            found.append((prompt, output, pause_s if found else math.nan))
            pause_s = 0.0
        pause_s += tool_s
    return found


def _nanoseconds(item: dict[str, Any], key: str, default: int | None = None) -> float:
    value = item.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise ValueError(f"{key}: expected nanoseconds, 0 or more; got {value!r}")
    return float(value)
