"""The page of which features of serving go together (`tests.policies.serving.features`), written by

    python -m tools.combinations
    python -m tools.combinations --triples 500 --seed 1 --seed 2

the second of which serves random triples, and writes its part of the page alone. With `--log FILE`
either keeps what it finds in a file, a line each, and goes on from there when it is called again;
what other sources have found is not taken up.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.policies.serving.features import Audit, Outcome, outcome, pairs, repeated
from tests.policies.serving.test_pairs import CONSERVATION, PAGE, triples


def sources() -> str:
    """The hash of what decides what is found: all that serves, and these tests."""
    root, digest = PAGE.parents[1], hashlib.sha256()
    here = root / "tests" / "policies" / "serving"
    for folder in (root / "policies", root / "hwmodel", here):
        for file in sorted((*folder.rglob("*.py"), *folder.rglob("*.yaml"))):
            digest.update(file.read_bytes())
    return digest.hexdigest()


class Log:
    """What was found of features, in a file that a killed run leaves whole but for its last line.
    Without a path nothing is kept."""

    def __init__(self, path: Path | None) -> None:
        self._path, self._found = path, dict[tuple[str, ...], Any]()
        if path is None:
            return
        first = json.dumps({"sources": sources()})
        lines = path.read_text(encoding="utf-8").splitlines(True) if path.exists() else []
        whole = [line for line in lines if line.endswith("\n")]
        if not whole or whole[0].strip() != first:
            whole = [f"{first}\n"]
        path.write_text("".join(whole), encoding="utf-8")
        for line in whole[1:]:
            names, found = json.loads(line)
            self._found[tuple(names)] = found

    def of(self, names: tuple[str, ...], find: Callable[[], Any]) -> Any:
        """What is kept of these features, or else what `find` gives: JSON."""
        if names not in self._found:
            self._found[names] = find()
            if self._path is not None:
                with self._path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps([names, self._found[names]]) + "\n")
        return self._found[names]


def commit() -> str:
    """The last one of this tree."""
    asked = ["git", "-C", str(PAGE.parent), "rev-parse", "--short=8", "HEAD"]
    return subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()


def conservation(many: int, seeds: list[int], log: Log) -> list[str]:
    """Lines of the page on so many random triples of each seed: how many run, and every breach."""
    served: dict[tuple[str, ...], Audit] = {}
    refused: dict[str, list[str]] = {}
    drawn = dict.fromkeys(names for seed in seeds for names in triples(many, seed))
    for at, names in enumerate(drawn, 1):
        found = log.of(names, functools.partial(repeated, names))
        if isinstance(found, str):
            refused.setdefault(found, []).append(" + ".join(names))
        else:
            served[names] = Audit(*found)
        if at % 25 == 0 or at == len(drawn):
            print(f"{at} of {len(drawn)} triples", flush=True)
    transfers, landed, lost = (
        sum(getattr(audit, key) for audit in served.values())
        for key in ("transfers", "landed_bytes", "lost_bytes")
    )
    broken = {names: audit for names, audit in served.items() if audit.breaches}
    return [
        CONSERVATION,
        "",
        "Each pair that runs is audited (`bankwise/conservation.py`), and each of"
        f" {len(drawn)} triples (as of {commit()}), drawn with seeds"
        f" {' and '.join(map(str, seeds))} from those of which every two run: every request"
        " ends once, with all of its tokens; every transfer that is put on a link lands once or is"
        " lost once; when all is over nobody holds memory of a card, a host or a drive; and a"
        " second run of a triple is the same to the last digit.",
        "",
        f"Of {len(drawn)} triples {len(served)} run, {len(drawn) - len(served)} refused."
        f" {transfers:,} transfers of {(landed + lost) / 1e9:.2f} GB were put on links,"
        f" {landed / 1e9:.2f} GB landed and {lost / 1e9:.2f} GB were lost.",
        "",
        *(f"- {'; '.join(those)}: `{why}`" for why, those in refused.items()),
        "",
        f"Breaches: {len(broken)}.",
        *(f"- {' + '.join(names)}: {audit.breaches[0]}" for names, audit in broken.items()),
    ]


BESIDE = (
    "`serving.kv_pad`, which is not among the pairs, with what moves KV (tiers, pools, connectors,"
    " moves, controllers of a cluster, swap): the bytes of a transfer are counted without the pads"
    " that the slots have"
)
"""An option that others refuse."""
NOT_MODELLED = ("not modelled", "prefixes not found")
"""What reasons have in them why a pair is refused that a real server could have; all others say why
it means nothing."""
TITLES = {
    "meaningless": "Refused: it would mean nothing",
    "not modelled": "Refused: not modelled yet",
    "unused": "Served, and one has nothing to do",
    "idle": "Without a trace",
    "fails": "Failing",
}
"""Headings of the page, by what pairs do that do not run."""


def kind(found: Outcome) -> str:
    """`Outcome.how`, with refusals of two kinds."""
    if found.how != "refused":
        return found.how
    return "not modelled" if any(each in found.why for each in NOT_MODELLED) else "meaningless"


def page(found: dict[tuple[str, ...], Outcome]) -> str:
    """The page of these outcomes."""
    counts = Counter(kind(each) for each in found.values())
    lines = [
        "# Which features of serving go together",
        "",
        "Every pair of features that are not choices of one option is served, small, and counts as"
        " running if each leaves its trace in the metrics, which differ from those without it."
        " What leaves none is said by the other, or cannot use it. What is refused either would"
        " mean nothing, whoever served it, or is not modelled yet. This page is written by"
        " `python -m tools.combinations`, from a clone.",
        "",
        f"Of {len(found)} pairs {counts['runs']} run.",
    ]
    for how, title in TITLES.items():
        groups: dict[str, list[str]] = {}
        for names, each in found.items():
            if kind(each) == how:
                said = "" if how == "idle" else each.why
                groups.setdefault(said, []).append(" + ".join(names))
        if groups:
            lines += [
                "",
                f"## {title}",
                "",
                f"{counts[how]} pairs.",
                "",
            ]
            for said, those in groups.items():
                lines.append(f"- {'; '.join(those)}" + (f": `{said}`" if said else ""))
            lines += [f"- {BESIDE}"] * (how == "not modelled")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Serve all pairs, or random triples, and write the page, or their part of it."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--triples", type=int, help="how many, instead of all pairs")
    parser.add_argument(
        "--seed", type=int, action="append", help="by which triples are drawn; repeatable"
    )
    parser.add_argument(
        "--log", type=Path, help="a file to keep what is found in, and to go on from"
    )
    asked = parser.parse_args()
    before, _, behind = PAGE.read_text(encoding="utf-8").partition(f"\n{CONSERVATION}\n")
    log = Log(asked.log)
    if asked.triples:
        lines = conservation(asked.triples, asked.seed or [1], log)
        print("\n".join(lines))
        behind = "\n".join(lines[1:]) + "\n"
    else:
        found: dict[tuple[str, ...], Outcome] = {
            names: Outcome(*log.of(names, functools.partial(outcome, names))) for names in pairs()
        }
        print(dict(Counter(each.how for each in found.values())))
        before = page(found)
    tail = f"\n{CONSERVATION}\n{behind}" if behind else ""
    PAGE.write_text(before + tail, encoding="utf-8")


if __name__ == "__main__":
    main()
