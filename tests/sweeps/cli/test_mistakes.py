"""Is each mistake a user makes answered by a line with its place, and is nothing written?"""

from __future__ import annotations

import gzip
import re
from pathlib import Path

from tests.sweeps.cli.test_command_line import bankwise

ROOT = Path(__file__).resolve().parents[3]
SWEEP = (ROOT / "yaml/sweeps/smoke.yaml").read_text()
MEMORY = (ROOT / "yaml/memories/lpddr5-6400-x16.yaml").read_text()
CARD = (ROOT / "yaml/accelerators/mlu370-x4.yaml").read_text()
ROWS = ["arrival_s,prompt_tokens,output_tokens", *(f"{i},100,20" for i in range(400))]


def mistakes(folder: Path, *arguments: str) -> list[str]:
    """The lines that refuse the input: exit code 2, no traceback, nothing new in the folder."""
    before = sorted(str(path) for path in folder.rglob("*"))
    done = bankwise(*arguments, cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert sorted(str(path) for path in folder.rglob("*")) == before
    lines = [line for line in done.stderr.splitlines() if not line.startswith("rehearsal")]
    assert lines and not any("Traceback" in line for line in lines)
    return lines


def write(file: Path, text: str, old: str, new: str) -> int:
    """`text` with its first `old` replaced; the number of the line that holds `new`."""
    changed = text.replace(old, new, 1)
    assert changed != text
    file.write_text(changed)
    return changed[: changed.index(new)].count("\n") + 1 + new.rstrip().count("\n")


def test_in_line_17_of_a_trace(tmp_path: Path) -> None:
    rows = [*ROWS[:16], "15,many,20", *ROWS[17:]]
    (tmp_path / "t.csv").write_text("\n".join(rows))
    (line,) = mistakes(tmp_path, "run", "smoke", "--set", "workload=t.csv")
    assert line.startswith("t.csv:17: prompt_tokens: ") and line.endswith("got 'many'")


def test_a_truncated_gzip(tmp_path: Path) -> None:
    packed = gzip.compress("\n".join(ROWS).encode(), mtime=0)
    (tmp_path / "t.csv.gz").write_bytes(packed[: len(packed) // 2])
    (line,) = mistakes(tmp_path, "run", "smoke", "--set", "workload=t.csv.gz")
    assert line.startswith("t.csv.gz:") and "the gzip data ends or breaks here" in line
    assert mistakes(tmp_path, "replay", "mlu370-x4", "t.csv.gz")[0].startswith("t.csv.gz:")


def test_a_request_that_never_fits_among_others(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("\n".join([*ROWS[:29], "28,500000,9", *ROWS[30:]]))
    (line,) = mistakes(tmp_path, "run", "smoke", "--set", "workload=t.csv")
    # the rehearsal or, where a worker is ahead of it, the capacity's run comes upon it first
    assert re.match(r".*\b1 of (120|576) requests can never be served", line)
    assert "500000 prompt" in line


def test_resuming_with_other_settings_or_running_over_a_run(tmp_path: Path) -> None:
    first = ("run", "smoke", "--set", "requests=5", "--out", "mine")
    assert bankwise(*first, cwd=tmp_path).returncode == 0
    again = ("run", "smoke", "--out", "mine", "--set")
    assert mistakes(tmp_path, *again, "requests=6", "--resume") == [
        "mine: cannot resume: base.requests is 5 there and 6 here; use another --out"
    ]
    assert mistakes(tmp_path, *again, "requests=5")[0].startswith("mine: already contains a run")


def test_does_a_check_name_every_mistake_of_a_card_and_of_its_memory_at_once(
    tmp_path: Path,
) -> None:
    text = CARD
    for old, new in (
        ("window: {value: 16KiB", "windw: {value: 16KiB"),
        ("engines: {value: 32", "engines: {value: 0"),
        ("scheduler: {value: frfcfs", "scheduler: {value: frfcf"),
        ("channel_hash: none", "channel_hsh: none"),
        ("bank_hash: []", "timing.tRDC: 18ns"),
    ):
        assert old in text
        text = text.replace(old, new)
    (tmp_path / "card.yaml").write_text(text)
    found = mistakes(tmp_path, "check", "card.yaml")
    words = ("dma.windw", "dma.engines", "controller.scheduler", "channel_hsh", "timing.tRDC")
    assert all(sum(word in line for line in found) == 1 for word in words) and len(found) == 5
    (tmp_path / "card.yaml").write_text(
        text.replace("memory: lpddr5-6400-x16\n", "memory: lpddr6\n")
    )
    found = mistakes(tmp_path, "check", "card.yaml")
    assert any("card.yaml:12: memory: no shipped memory 'lpddr6'" in line for line in found)


SEVEN = """\
kind: sweep
name: seven
summary: mistakes of every stage
question: why?
base:
  device: mlu370-x4
  device_set: {dma.windw: 16KiB}
  model: qwen3-9b
  workload: r1-reasonin
  serving:
    memory: {fidelity: sampeld}
  requests: 10
  replications: 0
axes:
  serving.kv_layout: [layer_kv_token, stat]
  serving.policy: [static, pagd]
compare: serving.policy
"""


def test_does_a_check_name_every_mistake_of_a_sweep_at_once(tmp_path: Path) -> None:
    (tmp_path / "seven.yaml").write_text(SEVEN)
    found = mistakes(tmp_path, "check", "seven.yaml")
    lines = {13, 11, 16, 15, 7, 8, 9}
    assert {int(line.split(":")[1]) for line in found} == lines and len(found) == 7
    (tmp_path / "seven.yaml").write_text(
        SEVEN.replace("qwen3-9b", "qwen3-8b").replace("r1-reasonin\n", "r1-reasoning\n")
        .replace("sampeld", "sampled").replace("s: 0", "s: 3").replace("pagd", "paged")
    )  # fmt: skip
    found = mistakes(tmp_path, "check", "seven.yaml")
    assert {int(line.split(":")[1]) for line in found} == {7, 15} and len(found) == 2


def test_does_a_study_name_what_each_stage_lacks_at_once(tmp_path: Path) -> None:
    listed = "space:\n  serving.policy.block: [16, 32]"
    (tmp_path / "s.yaml").write_text(STUDY.format(space=listed))
    (line,) = mistakes(tmp_path, "run", "s.yaml")
    assert line.endswith("got [16, 32]; did you mean {choice: [16, 32]}?")
    chosen = listed.replace("[16, 32]", "{choice: [16, 32]}")
    (tmp_path / "s.yaml").write_text(STUDY.format(space=chosen))
    memory, space = mistakes(tmp_path, "run", "s.yaml")
    assert memory.endswith("expected sampled, or finale: null")
    assert space.endswith("expected memory: sampled")


STUDY = """\
kind: study
name: mine
summary: none
base:
  {{device: mlu370-x4, model: llama-2-7b, workload: alpaca, requests: 6,
    serving: {{policy: paged}}}}
{space}
trials: 4
"""
