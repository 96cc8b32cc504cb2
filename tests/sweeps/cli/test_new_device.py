"""Does `bankwise new device` write a file that says what is known, and marks the rest?"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import bankwise as api
from hwmodel.description.description import DescriptionError
from hwmodel.specs.device import load_device
from hwmodel.specs.transformer import load_model
from sweeps.ask.fit import Fit, FitQuestion, fit
from sweeps.ask.fit_section import record
from sweeps.cli import new_command
from sweeps.plan.software import programs_of
from tests.sweeps.cli.test_command_line import bankwise
from tests.sweeps.cli.test_mistakes import mistakes

NX = {
    "memory": "lpddr5", "rate": "6400MT/s", "width": "128", "capacity": "16GiB",
    "flops": "15TFLOPS", "engines": "8",
}  # fmt: skip


def options(**changes: str | None) -> list[str]:
    given = {**NX, **changes}
    return [part for key, value in given.items() if value for part in (f"--{key}", value)]


def test_a_card_is_written_checked_and_usable(tmp_path: Path) -> None:
    done = bankwise("new", "device", "nx", *options(), "--flops", "int8=30TFLOPS", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    for text in (
        "wrote nx.yaml", "peak 102.4 GB/s; 6,400 MT/s x 128 bits is 102.4 (+0.00%)",
        "capacity 16 GiB; 8 channels x 2 GiB hold 16 (+0.0%)", "  bankwise nx.yaml",
        "kernels of class accelerator (vllm)", "derate 0.9, prefill_efficiency 0.5",
    ):  # fmt: skip
        assert text in done.stdout
    device = load_device(str(tmp_path / "nx.yaml"))
    assert device.accelerator is not None and device.derate == 0.9
    assert device.accelerator.compute.int8 == 30e12
    typed = {"capacity", "dma.engines", "compute.fp16", "compute.int8", "channels"}
    assert not typed & device.assumed.keys()
    assert {"interleave", "dma.window", "compute.bf16", "derate"} <= device.assumed.keys()
    listed = bankwise("check", "nx.yaml", "--assumed", cwd=tmp_path).stdout
    assert f"{listed.count('assumed:')} numbers are assumed" in done.stdout
    assert "nx" in bankwise("fit", "nx.yaml", "llama-3.2-3b", cwd=tmp_path).stdout


@pytest.mark.parametrize(("changes", "peak", "tck", "ranks"), [
    ({"rate": "5500", "width": 256, "capacity": "64GiB"}, 176.0, 1.45455, 1),
    ({"memory": "ddr4", "rate": "2666MT/s", "width": 64, "capacity": "32GiB"}, 21.328, 0.750188, 2),
    ({"memory": "lpddr5x", "rate": "8GT/s", "width": 256, "capacity": "128GiB"}, 256.0, 1.0, 2),
    ({"memory": "hbm3", "rate": "5.2Gb/s", "width": 5120, "capacity": "80GiB"}, 3328.0, 0.76923, 1),
    # 32 B of data in 36 on the wires
    ({"memory": "lpddr6", "rate": "10667", "width": 192, "capacity": "32GiB"}, 227.556, 0.375, 1),
])  # fmt: skip
def test_the_nearest_memory_runs_at_the_rate(
    tmp_path: Path, changes: dict[str, Any], peak: float, tck: float, ranks: int
) -> None:
    given: dict[str, Any] = {**NX, "width": 128, "engines": 8, "flops": {"bf16": "1TFLOPS"}}
    done = api.new_device("card", **{**given, **changes}, out=tmp_path)
    assert done.device.peak_gbps == pytest.approx(peak, rel=1e-5)
    assert float(done.device.memory.clock.tCK) == pytest.approx(tck, rel=1e-4)
    assert done.device.memory.organisation.ranks == ranks


@pytest.mark.parametrize("like", ["a100-80gb", "jetson-agx-orin", "strix-halo", "mlu370-x4"])
def test_a_card_described_twice_gives_one_answer(tmp_path: Path, like: str) -> None:
    given: dict[str, Any] = {
        "memory": "lpddr5x", "rate": "9600MT/s", "width": 512, "capacity": "64GiB", "engines": 40,
        "flops": {"fp16": "100TFLOPS"},
    }  # fmt: skip
    model = load_model("llama-3.1-8b")
    first, other = (
        fit(api.new_device(name, **given, like=base, out=tmp_path).device, model, FitQuestion())
        for name, base in (("first", None), ("other", like))
    )
    assert isinstance(first, Fit) and isinstance(other, Fit)
    assert (first.alone, first.full, first.prefill) == (other.alone, other.full, other.prefill)
    said = programs_of(other.device)
    assert (said["class"], said["derate"], said["prefill_efficiency"]) == ("accelerator", 0.9, 0.5)
    assert record(other)["programs"] == said


def test_what_has_no_timings_is_given(tmp_path: Path) -> None:
    given: dict[str, Any] = {**NX, "width": 192, "engines": 8, "flops": {"fp16": "121TFLOPS"}}
    new = {"memory": "gddr6x", "rate": "12.5Gb/s", "capacity": "24GiB", "link": "16GB/s"}
    done = api.new_device("l4", **{**given, **new}, out=tmp_path)
    assert done.device.given is not None and done.device.peak_gbps == 300.0
    assert done.notes[0].startswith("memory given, not simulated: no gddr6x near 12,500 MT/s ships")
    assert done.device.assumed["given.efficiency"] == "0.8"


def test_no_file_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "card.yaml").write_text("mine")
    (found,) = mistakes(tmp_path, "new", "device", "card", *options())
    assert found == "card.yaml: exists; give another name, or remove it"


def test_is_each_answer_at_a_terminal_looked_at_as_it_comes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(new_command.sys, "stdin", SimpleNamespace(isatty=lambda: True))
    answers = {"data rate": ["fast", "6400MT/s"], "capacity": ["9TiB", "16GiB"], "cores": [8]}
    questions = []

    def prompt(text: str, type: type) -> Any:
        questions.append(text)
        return next(left for word, left in answers.items() if word in text).pop(0)

    monkeypatch.setattr("typer.prompt", prompt)
    asked = {**NX, "width": 128, "rate": None, "capacity": None, "engines": None}
    found = new_command._asked(asked)
    assert (found["rate"], found["capacity"], found["engines"]) == ("6400MT/s", "16GiB", 8)
    assert len(questions) == 5  # two again, and before what comes next
    assert [line.partition(":")[0] for line in capsys.readouterr().err.splitlines()] == [
        "--rate", "--capacity",
    ]  # fmt: skip
    with pytest.raises(DescriptionError, match="--width: expected 1 or more"):
        new_command._asked({**asked, "width": 0})
