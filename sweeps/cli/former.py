"""Former commands: what to type instead, with the rest of the line where that is simple."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import NamedTuple


class Former(NamedTuple):
    """What stands for a command now. `now`: with {NAME} where one of `words`, the first arguments
    in order, or the value of an option of `moved` goes; what is not typed stays a NAME."""

    now: str
    words: tuple[str, ...] = ()
    moved: Mapping[str, str] = {}
    """Option -> NAME of its value in `now`."""
    renamed: Mapping[str, str] = {}
    """Option -> how it is called now; empty: its value stands alone."""
    dropped: tuple[str, ...] = ()
    """Words that are no longer needed."""


_LINKED = {"--link": "LINK"}
FORMER = {
    "bandwidth": Former("bankwise memory {DEVICE}", ("DEVICE",)),
    "device": Former("bankwise new device {NAME}", ("NAME",), dropped=("new",)),
    "devices": Former("bankwise list devices", dropped=("--no-simulate",)),
    "explore": Former("bankwise report {RUN} --explore", ("RUN",)),
    "figure": Former("bankwise report {RUN} --figure {NAME}", ("RUN", "NAME")),
    "kv-formats": Former("bankwise fit {MODEL} --formats", ("MODEL",), renamed={"--device": ""}),
    "kv-read": Former("bankwise replay {DEVICE} {LOG}", ("DEVICE", "LOG")),
    "model": Former("bankwise new model {config.json}", ("config.json",), dropped=("import",)),
    "models": Former("bankwise list models"),
    "pause": Former(
        "bankwise transfer {LINK} --pause --device {DEVICE} --model {MODEL}", ("DEVICE", "MODEL"),
        moved=_LINKED, renamed={"--context": "--tokens"},
    ),
    "predictor": Former("bankwise new predictor {FILE}", ("FILE",), dropped=("train",)),
    "restore": Former(
        "bankwise transfer {LINK} --restore --device {DEVICE} --model {MODEL}", ("DEVICE", "MODEL"),
        moved=_LINKED, renamed={"--contexts": "--tokens"},
    ),
    "schedule-check": Former("bankwise validate --schedules {FILE}", ("FILE",)),
    "schema": Former("bankwise check --schema {DIR}", ("KIND",), moved={"--out": "DIR"}),
    "site": Former("make docs", ("OUT",)),
    "states": Former("bankwise fit {DEVICE} {MODEL} --states", ("DEVICE", "MODEL")),
    "study": Former("bankwise run {STUDY}", ("STUDY",)),
    "tune": Former("bankwise size --device {DEVICE} --model {MODEL}", ("DEVICE", "MODEL")),
}  # fmt: skip
"""The former commands, by name."""


def successor(name: str, rest: list[str]) -> str:
    """The command line that does what a former command and the rest of its line did."""
    former = FORMER[name]
    rest = [word for word in rest if word not in former.dropped]
    values: dict[str, str] = {}
    for word in former.words:
        if rest and not rest[0].startswith("-"):
            values[word] = shlex.quote(rest.pop(0))
    kept: list[str] = []
    words = iter(rest)
    for word in words:
        if word in former.moved:
            values[former.moved[word]] = shlex.quote(next(words, former.moved[word]))
        else:
            kept += [renamed] if (renamed := former.renamed.get(word, word)) else []
    now = former.now
    for each in (*former.words, *former.moved.values()):
        now = now.replace(f"{{{each}}}", values.get(each, each))
    return f"{now} {shlex.join(kept)}".strip()
