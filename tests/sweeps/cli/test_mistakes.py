"""Is each mistake a user makes answered by a line with its place, and is nothing written?"""

from __future__ import annotations

import contextlib
import gzip
import io
import re
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from sweeps.cli.main import main

ROOT = Path(__file__).resolve().parents[3]
SWEEP = (ROOT / "yaml/sweeps/smoke.yaml").read_text()
MEMORY = (ROOT / "yaml/memories/lpddr5-6400-x16.yaml").read_text()
CARD = (ROOT / "yaml/accelerators/mlu370-x4.yaml").read_text()
ROWS = ["arrival_s,prompt_tokens,output_tokens", *(f"{i},100,20" for i in range(400))]


def mistakes(folder: Path, *arguments: str) -> list[str]:
    """The lines that refuse the input: exit code 2, no traceback, nothing new in the folder."""
    before = sorted(str(path) for path in folder.rglob("*"))
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.chdir(folder),
        redirect_stdout(out),
        redirect_stderr(err),
        pytest.raises(SystemExit) as left,
    ):
        main(list(arguments))
    assert (left.value.code, out.getvalue()) == (2, "")
    assert sorted(str(path) for path in folder.rglob("*")) == before
    lines = [line for line in err.getvalue().splitlines() if not line.startswith("rehearsal")]
    assert lines and not any("Traceback" in line for line in lines)
    return lines


def write(file: Path, text: str, old: str, new: str) -> int:
    """`text` with its first `old` replaced; the number of the line that holds `new`."""
    changed = text.replace(old, new, 1)
    assert changed != text
    file.write_text(changed)
    return changed[: changed.index(new)].count("\n") + 1 + new.rstrip().count("\n")


SWEEPS = [
    ("  requests: 100", "  reqests: 100", "reqests: unknown key; did you mean 'requests'?"),
    ("  requests: 100", "  requests: 100\n  requests: 9", "base.requests: duplicate key"),
    ("  seed: 1", "  seed: -1", "seed: "),
    ("  device: mlu370-x4", "  device: mlu370", "did you mean 'mlu370-x4'?"),
    ("  device: mlu370-x4", "  device: mine.yaml", "mine.yaml: no such file"),
    (
        "  model:",
        "  device_set: {timing: {tRCD: -5ns}}\n  model:",
        "device_set.timing.tRCD: a time cannot be negative",
    ),
]


@pytest.mark.parametrize(("old", "new", "said"), SWEEPS)
def test_in_a_sweep(old: str, new: str, said: str, tmp_path: Path) -> None:
    line = write(tmp_path / "s.yaml", SWEEP, old, new)
    first = mistakes(tmp_path, "run", "s.yaml")[0]
    assert said in first
    if not said.endswith(("'mlu370-x4'?", "no such file")):
        assert first.startswith(("s.yaml:" + str(line), f"s.yaml:{line - 1}"))


MEMORIES = [
    ("  tRP: ", "  tRPP: ", "tRPP"),
    ("  tRP: ", "  tRP: 18ns\n  tRP: ", "timing.tRP: duplicate key"),
    ("tCK: {value: 1.25ns", "tCK: {value: 1.25GB", "clock.tCK: unit 'GB' is not a time"),
    ("tCK: {value: 1.25ns", "tCK: {value: -1.25ns", "clock.tCK: a time cannot be negative"),
]


@pytest.mark.parametrize(("old", "new", "said"), MEMORIES)
def test_in_a_memory(old: str, new: str, said: str, tmp_path: Path) -> None:
    write(tmp_path / "m.yaml", MEMORY, old, new)
    lines = mistakes(tmp_path, "memory", "m.yaml", "--pattern", "sequential")
    assert said in lines[0]
    assert lines[0].startswith("m.yaml:") and lines[0].split(":")[1].isdigit()


CARDS = [
    ("channels:", "chanels:", "chanels: unknown key; did you mean 'channels'?"),
    ("  window: {value: 16KiB", "  window: {value: 16ns", "dma.window: unit 'ns' is not"),
    ("memory: lpddr5", "memory: lpdr5", "did you mean 'lpddr5-6400-x16'?"),
]


@pytest.mark.parametrize(("old", "new", "said"), CARDS)
def test_in_an_accelerator_that_a_sweep_names(
    old: str, new: str, said: str, tmp_path: Path
) -> None:
    write(tmp_path / "card.yaml", CARD, old, new)
    lines = mistakes(tmp_path, "run", "smoke", "--set", "device=card.yaml")
    assert said in lines[0]
    assert str(tmp_path) not in lines[0]


def test_in_an_override_it_is_placed_as_it_was_typed(tmp_path: Path) -> None:
    typed = "device_set.timing.tRCD=5GB"
    assert mistakes(tmp_path, "run", "smoke", "--set", typed) == [
        f"--set {typed}: device_set.timing.tRCD: unit 'GB' is not a time; "
        "expected one of ps, ns, us, µs, ms, s"
    ]
    typed = "axes.device_set.timing.tRCD=[5ns, -5ns]"
    assert mistakes(tmp_path, "run", "smoke", "--set", typed)[0].startswith(f"--set {typed}: ")


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


def test_a_capacity_too_small_for_the_weights(tmp_path: Path) -> None:
    (line,) = mistakes(tmp_path, "run", "smoke", "--set", "device_set.capacity=8GiB")
    assert line.startswith("sweeps/smoke.yaml: static: mlu370-x4 is too small for llama-2-7b")


def test_a_request_that_never_fits_among_others(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("\n".join([*ROWS[:29], "28,500000,9", *ROWS[30:]]))
    (line,) = mistakes(tmp_path, "run", "smoke", "--set", "workload=t.csv")
    # the rehearsal or, where a worker is ahead of it, the capacity's run comes upon it first
    assert re.match(r".*\b1 of (120|576) requests can never be served", line)
    assert "500000 prompt" in line


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["run", "smok"], "no shipped sweep or study 'smok'; did you mean 'smoke'?"),
        (["run", "none.yaml"], "none.yaml: no such file"),
        (["run", "smoke", "--jobs", "0"], "--jobs: expected 1 or more; got 0"),
        (["run", "smoke", "--out", "full"], "full: exists and is not a run directory"),
        (["run", "smoke", "--out", "file"], "file: exists and is not a run directory"),
        (["run", "smoke", "--set", "workload=none.csv"], "none.csv: no such file"),
        (["report", "none"], "none: no such directory"),
        (["report", "empty"], "empty: is empty: it has neither results nor config.yaml"),
        (["replay", "mlu370-x4", "none.txt"], "none.txt"),
        (["run", "smoke", "--set", "serving.memory.fidelity=sampld"],
         "--set serving.memory.fidelity=sampld: serving.memory.fidelity: Input should be 'analyti"
         "c', 'sampled', 'full' or 'exhaustive'; got 'sampld'; did you mean 'sampled'?"),
        (["run", "smoke", "--set", "device.capacity=48GiB"],
         "--set device.capacity=48GiB: device.capacity: names a description; did you mean"
         " device_set.capacity?"),
        (["run", "quick", "--set", "trial=4"],
         "--set trial=4: trial: unknown key; did you mean 'trials'?"),
        (["run", "odma", "--trials", "0"], "--set trials=0: trials: Input should be greater"),
        (["run", "odma", "--device", "al"], "no shipped device 'al'; did you mean 'all'?"),
        (["run", "smoke", "--set", "objective.ttft=2s"],
         "sweeps/smoke.yaml:2: objective: Input should be 'throughput'"),
        (["run", "smoke", "--set", "rule.best=2s"],
         "sweeps/smoke.yaml:2: rule: expected a rule; got {'best': '2s'}; known: best"),
        (["run", "smoke", "--set", "load={relative:1.5}"],
         "--set load={relative:1.5}: load: a space is missing: relative: 1.5"),
        (["quickstrt"],
         "no verb or device 'quickstrt'; did you mean bankwise run quickstart?"),
        (["size", "--modle", "llama-3.1-8b"],
         "bankwise size: no such option: --modle; did you mean '--model'?; see bankwise size --h"),
        (["calibrate", "none.log"], "none.log: no such file, or described server"),
    ],
)  # fmt: skip
def test_on_the_command_line(arguments: list[str], line: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "full").mkdir()
    (tmp_path / "full/mine.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    (said,) = mistakes(tmp_path, *arguments)
    assert said.startswith(line)


def test_resuming_with_other_settings_or_running_over_a_run(tmp_path: Path) -> None:
    with contextlib.chdir(tmp_path), pytest.raises(SystemExit) as left:
        main(["run", "smoke", "--set", "requests=5", "--out", "mine"])
    assert left.value.code == 0
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
