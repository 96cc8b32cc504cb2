"""Is each mistake answered by a line that says what is wrong, and is nothing written?

`refusals/*.yaml` are the records. A group is a command `line`, or a description to load with
settings, in a folder with its `files`, its `copies` of what ships and its `runs`; each of its lines
is what is given and, after ` => `, what is said (`...` stands for any words). `GIVEN` in the group
is replaced by what is given, and `old -> new` changes its files; where neither is there, it is the
end of the command, or settings with ` & ` between them.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

import yaml
from hwmodel.description.description import DescriptionError
from hwmodel.description.yaml_reader import override
from hwmodel.specs.device import load_device
from hwmodel.specs.number_format import number_format
from hwmodel.specs.transformer import load_model
from policies.engines.schedule_cases import read_cases
from policies.memory.measured import load_measurements
from policies.requests.request_log import read_request_log
from policies.requests.workload import WorkloadSpec, workload_document
from policies.serving.measured_server import compare_server, load_server
from policies.serving.server_log import BlockLog
from sweeps.cli.main import main
from sweeps.plan.sweep import load_sweep
from sweeps.study.study_spec import load_study
from tests.policies.refused_serving import serve_described
from tests.sweeps.made import made

ROOT = Path(__file__).resolve().parents[1]


def workload(name: str, settings: list[str]) -> WorkloadSpec:
    document = workload_document(name)
    for each in settings:
        override(document, each)
    return document.build(WorkloadSpec)


LOAD = {
    "block_log": lambda name, _: [*BlockLog(Path(name))],
    "device": load_device,
    "measurement": lambda name, _: load_measurements(name),
    "format": lambda name, _: number_format(name),
    "model": load_model,
    "request_log": lambda name, _: read_request_log(Path(name)),
    "schedules": lambda name, _: read_cases(name),
    "server": lambda name, _: compare_server(load_server(name)),
    "serving": serve_described,
    "study": load_study,
    "sweep": load_sweep,
    "workload": workload,
}
CASES = [
    pytest.param(group, *line.split(" => ", 1), id=f"{file.stem}-{line.partition(' => ')[0]}"[:90])
    for file in sorted(Path(__file__).parent.glob("refusals/*.yaml"))
    for group in yaml.safe_load(file.read_text(encoding="utf-8"))
    for line in group["refuses"].splitlines()
]


def prepare(group: dict[str, Any], given: str) -> bool:
    """Writes the files of the group; true where what is given is in them."""
    texts = dict(group.get("files", {}))
    for name, shipped in group.get("copies", {}).items():
        texts[name] = (ROOT / shipped).read_text(encoding="utf-8")
    for name in group.get("runs", ()):
        made(Path(name))
    old, arrow, new = given.replace("\\n", "\n").partition(" -> ")
    pair = (old, new) if arrow else ("GIVEN", old)
    for name, text in texts.items():
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(text.replace(*pair, 1), encoding="utf-8")
    return any(pair[0] in text for text in texts.values())


def answer(group: dict[str, Any], rest: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The lines that refuse it."""
    if "line" not in group:
        kind = next(kind for kind in LOAD if kind in group)
        with pytest.raises(DescriptionError) as refused:
            LOAD[kind](group[kind], [*group.get("set", ()), *filter(None, rest.split(" & "))])
        return str(refused.value).splitlines()
    words = shlex.split(group["line"])
    if "GIVEN" in words:
        words[words.index("GIVEN")] = rest
    else:
        words += shlex.split(rest)
    with pytest.raises(SystemExit) as left:
        main(words)
    out, err = capsys.readouterr()
    assert (left.value.code, out) == (2, "")
    return [line for line in err.splitlines() if not line.startswith("rehearsal")]


@pytest.mark.parametrize(("group", "given", "said"), CASES)
def test_it_is_refused_in_a_line_and_nothing_is_written(
    group: dict[str, Any],
    given: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    in_files = prepare(group, given)
    before = sorted(tmp_path.rglob("*"))
    lines = answer(group, "" if in_files else given, capsys)
    assert sorted(tmp_path.rglob("*")) == before
    each = said.split(" => ")
    assert len(lines) == len(each), lines
    for line, parts in zip(lines, each, strict=True):
        assert all(part in line for part in parts.split(" ... ")), lines
