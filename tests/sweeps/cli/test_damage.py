"""Is every damaged description answered with lines, and never with a traceback?"""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwmodel.description.description import DescriptionError
from hwmodel.description.library import LIBRARY
from hwmodel.specs.device import load_device
from sweeps.cli.inspection import inspect

BOMB = "\n".join(["a: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1]"] + [
    f"b{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 9)
])  # fmt: skip
NESTED = "{value: " * 30 + "1" + ", source: x}" * 30
ODD = (
    "99999999999999999999999999", "1" * 5000, ".nan", "-.inf", "-1", "true", "null", "[]", "{}",
    "''", "[[1]]", '"\\x00"', "2020-01-01", "!!binary aGk=", "!!python/object:os.system {}", "*x",
    "&x [*x]", "&x {a: *x}", "0x10", "1e5", "010", "12:30", "yes", "tRCD / 0", "1e400", "0ns",
    "(" * 300 + "1" + ")" * 300, "+".join(["1"] * 3000), "1" * 400 + "ns", "{a: 1, a: 2}", NESTED,
    "[column:99999999999, row]", "{? [a] : b}", "{1: 2, null: 3}", "x" * 5000, "/dev/null", "../..",
    "{value: 3, source: [{a: b}]}",
)  # fmt: skip
KINDS = ("memories/lpddr5-6400-x16-8b", "memories/hbm3-6.4", "accelerators/mlu370-x4",
         "models/llama-2-7b", "workloads/conversation-to-reasoning", "sweeps/smoke")  # fmt: skip
TEXTS = {name: (LIBRARY / f"{name}.yaml").read_bytes() for name in KINDS}


def _damaged(raw: bytes, way: str, odd: str, chance: random.Random) -> bytes:
    lines = raw.decode().split("\n")
    at = chance.randrange(len(lines))
    if way == "cut":
        return raw[: chance.randrange(len(raw))]
    if way == "byte":
        place = chance.randrange(len(raw))
        return raw[:place] + bytes([chance.randrange(256)]) + raw[place + 1 :]
    if way == "tab":
        lines[at] = "\t" + lines[at]
    elif way == "indent":
        lines[at] = "   " + lines[at]
    elif way == "twice":
        lines.insert(at, chance.choice(lines))
    elif way == "gone":
        del lines[at]
    else:
        values = list(re.finditer(r"(?<=: )[^\s{\[,}\]]+", raw.decode()))
        hit = chance.choice(values)
        return (raw.decode()[: hit.start()] + odd + raw.decode()[hit.end() :]).encode()
    return "\n".join(lines).encode()


@given(
    st.sampled_from(KINDS),
    st.sampled_from(["cut", "byte", "tab", "indent", "twice", "gone", "value", "value", "value"]),
    st.sampled_from(ODD),
    st.integers(0, 2**32),
)
@settings(max_examples=settings.default.max_examples // 4)
def test_damage_is_answered(
    tmp_path_factory: pytest.TempPathFactory, name: str, way: str, odd: str, seed: int
) -> None:
    file = tmp_path_factory.getbasetemp() / "damaged.yaml"
    file.write_bytes(_damaged(TEXTS[name], way, odd, random.Random(seed)))
    assert inspect([str(file)], [], assumed=True) in (0, 1)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: &a [*a]", ":1: a[0]: an alias stands inside what it names"),
        ("kind: memory\na: &a\n  b: {c: *a}", ":2: a.b.c: an alias stands inside what it names"),
        (BOMB, "aliases expand to more than 100,000 values"),
        ("a: " + "[" * 200 + "]" * 200, ":1: not YAML: nested over 50 deep"),
        ("a: b\nc: \x17", ":2: not YAML: special characters are not allowed"),
        ("kind: [memory]", ":1: kind: unknown kind ['memory']"),
    ],
)
def test_what_has_no_end_has_its_line(
    text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.yaml").write_text(text)
    assert inspect([str(tmp_path / "mine.yaml")], []) == 1
    assert said in capsys.readouterr().err


def test_an_alias_is_its_value(tmp_path: Path) -> None:
    text = TEXTS["memories/lpddr5-6400-x16-8b"].decode()
    text = text.replace("tWTR_S: null", "tWTR_S: &gone null").replace(
        "tWTR_L: null", "tWTR_L: *gone"
    )
    (tmp_path / "mine.yaml").write_text(text)
    assert inspect([str(tmp_path / "mine.yaml")], []) == 0


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("constraints[3].delay=tRCD / 0", "constraints[3].delay: divides by zero"),
        ("activate.max_gap=" + "+".join(["1"] * 400), "at most 300 characters; got 799"),
        ("timing.tREFI=" + "9" * 40 + "ns", "timing.tREFI: expected at most 1099511627776 ticks"),
        ("clock.tCK=0." + "0" * 400 + "1ns", "tCK must be at least 1ps"),
        ("clock.beats_per_ck=" + "9" * 400, "clock.beats_per_ck: Input should be less than"),
        ("organisation.rows=1073741824", "more than 17592186044416 B a channel"),
        ("commands.RD.slots=.inf", "commands.RD.slots: Input should be less than"),
        ("energy.activate=" + "9" * 400 + "pJ", "energy.activate: energy out of range"),
        (
            "controller.page_timeout=2s",
            "controller: page_timeout must be above zero and at",
        ),
        ("refresh.per_bank.sets=[[99]]", "refresh.per_bank.sets: no bank 99; a rank has 16"),
    ],
)
def test_what_no_kernel_holds_is_refused(setting: str, said: str) -> None:
    with pytest.raises(DescriptionError) as error:
        load_device("lpddr5-6400-x16", [setting])
    assert said in str(error.value)
