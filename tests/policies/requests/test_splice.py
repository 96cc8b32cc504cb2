"""Do spliced workloads, shared prefixes and samples come out as they were described?"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hwmodel.description.description import DescriptionError
from hwmodel.description.yaml_reader import override
from policies.requests.request_stream import generate
from policies.requests.requests import Requests
from policies.requests.workload import WorkloadSpec, workload_document
from tests.policies.workloads import resolve_workload

HEAD = "kind: workload\nname: {name}\nsummary: a test\n"
ONE = "{constant: {prompt_tokens: 10, output_tokens: 1}}"
TWO = "{constant: {prompt_tokens: 20, output_tokens: 2}}"


def write(folder: Path, name: str, body: str) -> Path:
    file = folder / f"{name}.yaml"
    file.write_text(HEAD.format(name=name) + body)
    return file


@pytest.fixture
def parts(tmp_path: Path) -> Path:
    """A folder with `one.yaml`, `two.yaml` and a trace `three.jsonl` of shared prompts."""
    write(tmp_path, "one", f"lengths: {ONE}\n")
    write(tmp_path, "two", f"lengths: {TWO}\nsamples: 4\nprefixes: {{count: 2, tokens: 5}}\n")
    row = '{{"timestamp": {0}, "input_length": 600, "output_length": 3, "hash_ids": [0, {0}]}}\n'
    (tmp_path / "three.jsonl").write_text("".join(row.format(i) for i in range(1, 101)))
    return tmp_path


def splice(folder: Path, text: str, rest: str = "") -> WorkloadSpec:
    return resolve_workload(str(write(folder, "all", f"lengths: {{splice: {text}}}\n{rest}")))


def outputs(spec: WorkloadSpec, count: int, **changes: int) -> list[int]:
    found: list[int] = generate(spec, count, 1.0, **changes).output_tokens.tolist()
    return found


def test_segments_follow_one_another_by_their_shares(parts: Path) -> None:
    spec = splice(parts, "{parts: [{workload: ./one.yaml, share: 3}, {workload: ./two.yaml}]}")
    assert outputs(spec, 8) == [1] * 6 + [2] * 2
    assert outputs(spec, 100) == [1] * 75 + [2] * 25


def test_interleaved_parts_have_their_shares_everywhere(parts: Path) -> None:
    text = "order: interleave, parts: [{workload: ./one.yaml, share: 3}, {workload: ./two.yaml}]"
    found = np.array(outputs(splice(parts, f"{{{text}}}"), 8000)) == 2
    for quarter in np.split(found, 4):
        assert quarter.mean() == pytest.approx(0.25, abs=0.03)
    assert outputs(splice(parts, f"{{{text}}}"), 50) != outputs(
        splice(parts, f"{{{text}}}"), 50, seed=2
    )


def test_drift_moves_evenly_from_the_first_to_the_second(parts: Path) -> None:
    spec = splice(parts, "{order: drift, parts: [{workload: ./one.yaml}, {workload: ./two.yaml}]}")
    shares = [part.mean() for part in np.split(np.array(outputs(spec, 8000)) == 2, 4)]
    assert shares == pytest.approx([1 / 8, 3 / 8, 5 / 8, 7 / 8], abs=0.03)


def test_parts_keep_their_samples_and_have_prefixes_of_their_own(parts: Path) -> None:
    text = "{parts: [{workload: ./two.yaml}, {workload: ./two.yaml}, {workload: three.jsonl}]}"
    requests = generate(splice(parts, text), 30, 1.0)
    first, second, third = (requests[i : i + 10] for i in (0, 10, 20))
    assert set(first.prefix_id) == {0, 1} and set(second.prefix_id) == {2, 3}
    assert set(third.prefix_id) == {4} and set(third.prefix_tokens) == {512}
    assert set(first.prompt_tokens) == {25} and set(first.prefix_tokens) == {5}
    assert set(first.samples) == {4} and set(third.samples) == {1}
    alike = generate(splice(parts, text, "samples: 2\n"), 30, 1.0)
    assert set(alike.samples) == {2}


def test_replications_take_other_stretches_of_a_trace_inside_a_splice(parts: Path) -> None:
    rows = "".join(f"{i},5,{i + 1}\n" for i in range(40))
    (parts / "long.csv").write_text("arrival_s,prompt_tokens,output_tokens\n" + rows)
    spec = splice(parts, "{parts: [{workload: long.csv}, {workload: ./one.yaml}]}")
    assert outputs(spec, 20)[:10] == list(range(1, 11))
    assert outputs(spec, 20, stretch=2)[:10] == list(range(21, 31))
    with pytest.raises(DescriptionError, match="has 40 requests and 50 are asked for"):
        outputs(spec, 20, stretch=4)


def test_a_trace_inside_a_splice_is_known_by_its_content(parts: Path) -> None:
    text = "{parts: [{workload: ./one.yaml}, {workload: three.jsonl}]}"
    before = splice(parts, text).lengths.splice
    (parts / "three.jsonl").write_text((parts / "three.jsonl").read_text() + "\n")
    after = splice(parts, text).lengths.splice
    assert before is not None and after is not None
    assert before.parts[0].sha256 is None
    assert before.parts[1].sha256 != after.parts[1].sha256


def test_a_splice_of_splices_and_shipped_workloads(parts: Path) -> None:
    inner = "lengths: {splice: {parts: [{workload: ./one.yaml}, {workload: azure-conv}]}}\n"
    write(parts, "inner", inner)
    spec = splice(parts, "{parts: [{workload: ./inner.yaml}, {workload: ./two.yaml}]}")
    assert outputs(spec, 8)[:2] == [1, 1] and outputs(spec, 8)[4:] == [2] * 4
    assert outputs(spec, 8)[2:4] != outputs(spec, 8, seed=5)[2:4]


def test_a_part_does_not_hang_on_the_others_or_on_arrivals(parts: Path) -> None:
    second = "{workload: ./two.yaml}"
    text = f"{{parts: [{{workload: azure-conv}}, {second}]}}"
    one = generate(splice(parts, text), 100, 1.0, seed=3)
    other = generate(splice(parts, text, "arrivals: {process: fixed}\n"), 100, 7.0, seed=3)
    assert one.prompt_tokens.tolist() == other.prompt_tokens.tolist()


def shared(prefixes: str, rest: str = "", count: int = 4000) -> Requests:
    document = workload_document("constant")
    override(document, f"prefixes={prefixes}")
    if rest:
        override(document, rest)
    return generate(document.build(WorkloadSpec), count, 1.0)


def test_system_prompts_come_before_the_prompt_of_their_share() -> None:
    requests = shared("{count: 4, tokens: 100, share: 0.6}")
    has = requests.prefix_id >= 0
    assert has.mean() == pytest.approx(0.6, abs=0.03)
    assert np.bincount(requests.prefix_id[has]) == pytest.approx([600] * 4, rel=0.15)
    assert requests.prompt_tokens.tolist() == np.where(has, 612, 512).tolist()
    assert requests.prefix_tokens.tolist() == np.where(has, 100, 0).tolist()
    assert (
        requests[:50].prefix_id.tolist()
        == shared("{count: 4, tokens: 100, share: 0.6}", count=50).prefix_id.tolist()
    )


def test_a_cap_cuts_the_prompt_with_its_prefix() -> None:
    requests = shared("{count: 1, tokens: 700}", "limits.max_prompt_tokens=650")
    assert set(requests.prompt_tokens) == {650} and set(requests.prefix_tokens) == {650}


def test_a_trace_with_prefixes_takes_no_others(parts: Path) -> None:
    document = workload_document(str(parts / "three.jsonl"))
    override(document, "prefixes={count: 1, tokens: 3}")
    with pytest.raises(DescriptionError, match="prefixes of their own"):
        generate(document.build(WorkloadSpec), 10, 1.0)
