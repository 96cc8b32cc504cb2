"""Sessions: requests that are the turns of a conversation, of an agent, or questions on a document.

A turn's prompt is all of the session so far - system prompt, document, earlier messages and answers
- and a new message (of a user, or of a tool); it is sent a pause after the last answer. The laws
are assumed: a geometric number of turns, lognormal messages, answers and documents, popularity by
Zipf's law. A session ends before its context would exceed `context_tokens`.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import numpy as np
from pydantic import Field

from hwmodel.description.description import Strict, checked
from policies.requests.arrivals import ExponentialTime, NotNegative, Positive
from policies.requests.requests import MAX_TOKENS, FloatArray, IntArray

Tokens = Annotated[int, Field(ge=1, le=MAX_TOKENS)]
Stream = Callable[[str], np.random.Generator]


class LognormalLength(Strict):
    """ln(tokens) is normal: `median` tokens, standard deviation `sigma` of the logarithm."""

    median: Positive
    """In tokens."""
    sigma: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    """Standard deviation of the logarithm."""

    def sample(self, count: int, rng: np.random.Generator) -> IntArray:
        """Whole tokens, at least 1, int64 (count,)."""
        ln = np.log(self.median) + self.sigma * rng.standard_normal(count)
        return np.rint(np.exp(np.clip(ln, 0, np.log(MAX_TOKENS)))).astype(np.int64)


class LognormalTime(Strict):
    """ln(seconds) is normal: `median_s` seconds, standard deviation `sigma` of the logarithm."""

    median_s: Positive
    """In seconds."""
    sigma: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    """Standard deviation of the logarithm."""


class Openings(Strict):
    """Texts that sessions begin with: `count` of them of these lengths, each as often as Zipf's law
    says, 1 / rank ^ `zipf` (0: all alike)."""

    count: Tokens
    """Different texts."""
    tokens: LognormalLength
    zipf: NotNegative = 0.0
    """Exponent of the law; 0: all alike."""

    def sample(self, count: int, rng: np.random.Generator) -> IntArray:
        """Which one each of `count` sessions begins with, int64 (count,)."""
        weights = np.arange(1, self.count + 1, dtype=np.float64) ** -self.zipf
        index: IntArray = np.searchsorted(np.cumsum(weights) / weights.sum(), rng.random(count))
        return np.minimum(index, self.count - 1)


class Sessions(Strict):
    """Laws of sessions; see the module."""

    mean_turns: Annotated[float, Field(ge=1, allow_inf_nan=False)]
    """Of a geometric number, at least 1."""
    message_tokens: LognormalLength
    """What each turn adds to the prompt, beside the answer before."""
    output_tokens: LognormalLength
    max_output_tokens: Tokens = MAX_TOKENS
    """Longer answers are cut."""
    pause_s: NotNegative | ExponentialTime | LognormalTime = 0.0
    """From an answer to the next turn."""
    context_tokens: Tokens
    """Most tokens of a session. A first turn that is longer is cut."""
    system: Openings | None = None
    """System prompts."""
    documents: Openings | None = None
    """Documents, behind the system prompt: that of rank k goes with the prompt k modulo their
    count."""

    @checked
    def _openings_leave_room(self) -> None:
        both = [each.tokens for each in (self.system, self.documents) if each is not None]
        if sum(each.median for each in both) > self.context_tokens - 2:
            raise ValueError("context_tokens: the median opening leaves no room for a first turn")


class Turns(NamedTuple):
    """n turns, those of a session next to each other. session, prompt, output, prefix_id,
    prefix_tokens, context: int64 (n,) as in `Requests`; pause_s: float64 (n,), nan for first turns;
    tree: int64 (ids, 2)."""

    session: IntArray
    prompt: IntArray
    output: IntArray
    pause_s: FloatArray
    prefix_id: IntArray
    prefix_tokens: IntArray
    context: IntArray
    tree: IntArray

    def rows(self, rows: Any) -> Turns:
        """Those of a slice, a mask or of indices, in their order."""
        return Turns._make([*(column[rows] for column in self[:-1]), self.tree])


def turns_of(law: Sessions, count: int, stream: Stream) -> Turns:
    """The first `count` turns of as many sessions as that takes. stream: a generator for each
    purpose; more turns leave the first ones as they were, but for the last session's."""
    turns = stream("turns").geometric(1 / law.mean_turns, count)
    turns = np.minimum(turns, min(count, law.context_tokens // 2))  # a turn has two tokens or more
    sessions = int(np.searchsorted(np.cumsum(turns), count)) + 1
    while len((drawn := _turns(law, turns[:sessions], stream)).session) < count:
        sessions *= 2  # some ended early, as their context was full
    return drawn.rows(slice(count))


def _turns(law: Sessions, turns: IntArray, stream: Stream) -> Turns:
    """All turns of sessions of so many, where their context allows."""
    prefix_id, opening, tree = _openings(law, len(turns), stream)
    room = law.context_tokens - opening - 2
    opening, room = opening + np.minimum(room, 0), np.maximum(room, 0)
    session = np.repeat(np.arange(len(turns)), turns)
    first = np.cumsum(turns) - turns
    message = law.message_tokens.sample(len(session), stream("messages"))
    output = law.output_tokens.sample(len(session), stream("outputs"))
    output = np.minimum(output, law.max_output_tokens)
    message[first] = np.minimum(message[first], 1 + room)
    output[first] = np.minimum(output[first], 2 + room - message[first])
    whole = np.cumsum(message + output)
    whole += (opening - whole[first] + (message + output)[first])[session]
    kept = whole <= law.context_tokens
    pause = _pauses(law, len(session), stream("pauses"))
    pause[first] = np.nan
    prefix = prefix_id[session], opening[session]
    return Turns(session, whole - output, output, pause, *prefix, session, tree).rows(kept)


def _openings(law: Sessions, sessions: int, stream: Stream) -> tuple[IntArray, IntArray, IntArray]:
    """(prefix id and tokens of each session's opening, int64 (sessions,) each; the tree of ids)."""
    nothing = np.zeros(sessions, np.int64)
    chosen, at, tree = nothing - 1, nothing, np.zeros((0, 2), np.int64)
    size = np.zeros(1, np.int64)
    if law.system is not None:
        size = law.system.tokens.sample(law.system.count, stream("system lengths"))
        tree = np.stack((np.full(len(size), -1), np.zeros_like(size)), axis=1)
        chosen = law.system.sample(sessions, stream("system"))
        at = size[chosen]
    if law.documents is not None:
        lengths = law.documents.tokens.sample(law.documents.count, stream("document lengths"))
        above = np.arange(len(lengths)) % len(size)
        before = size[above]
        above = above if len(tree) else above - 1
        document = law.documents.sample(sessions, stream("documents"))
        chosen, at = document + len(tree), (before + lengths)[document]
        tree = np.concatenate((tree, np.stack((above, before), axis=1)))
    return chosen, at, tree


def _pauses(law: Sessions, count: int, rng: np.random.Generator) -> FloatArray:
    if isinstance(law.pause_s, ExponentialTime):
        return law.pause_s.mean_s * rng.standard_exponential(count)
    if isinstance(law.pause_s, LognormalTime):
        normal = rng.standard_normal(count)
        return np.asarray(law.pause_s.median_s * np.exp(law.pause_s.sigma * normal), np.float64)
    return np.full(count, law.pause_s)


def in_turn(sessions: IntArray, clients: int) -> IntArray:
    """Rows of a closed loop in the order in which clients send them if every turn takes equally
    long; each client goes on with the next session when its own has ended. sessions: int64 (n,),
    the session of each turn, rising."""
    turns = np.bincount(sessions)
    free = [0] * clients
    begins = np.zeros(len(turns), np.int64)
    for session, length in enumerate(turns.tolist()):
        begins[session] = free[0]
        heapq.heapreplace(free, free[0] + length)
    first = np.cumsum(turns) - turns
    when = begins[sessions] + np.arange(len(sessions)) - first[sessions]
    return np.argsort(when, kind="stable")
