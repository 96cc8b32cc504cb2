"""A mistake in a description is answered with file, line, path, and the nearest key."""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path

import pytest

from hwmodel.description.based_on import complete
from hwmodel.description.description import DescriptionError, Mark, Strict, nearest
from hwmodel.description.expression import evaluate, names_in
from hwmodel.description.library import find, names
from hwmodel.description.units import Bytes, Clock, ExactNanoseconds, parse_quantity
from hwmodel.description.yaml_reader import load, loads, override
from hwmodel.specs.device import device_names, load_device
from hwmodel.specs.memory_spec import MemorySpec
from tests.rotation import shared


class Inner(Strict):
    delay: ExactNanoseconds
    size: Bytes = 0


class Outer(Strict):
    name: str
    inner: Inner
    count: int = 1


GOOD = "name: x\ninner:\n  delay: 18ns\n  size: 2KiB\n"


def message(text: str) -> str:
    with pytest.raises(DescriptionError) as error:
        loads(text, "f.yaml").build(Outer)
    return str(error.value)


def test_a_good_document_reads_into_its_spec() -> None:
    spec = loads(GOOD).build(Outer)
    assert spec.inner.delay == 18 and spec.inner.size == 2048


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (GOOD + "  dely: 3ns\n", "f.yaml:5: inner.dely: unknown key; did you mean 'delay'?"),
        (GOOD + "name: y\n", "f.yaml:5: name: duplicate key, first given on line 1"),
        (GOOD.replace("18ns", "18"), "f.yaml:3: inner.delay: expected a time with its unit"),
        (GOOD.replace("18ns", "18nm"), "f.yaml:3: inner.delay: unit 'nm' is not a time"),
        (GOOD.replace("18ns", "-18ns"), "f.yaml:3: inner.delay: a time cannot be negative"),
        (GOOD.replace("2KiB", "2000"), "f.yaml:4: inner.size: expected a size with its unit"),
        (GOOD + "count: 1e9\n", "f.yaml:5: count: '1e9' is not a number in YAML"),
        (GOOD + "count: 010\n", "f.yaml:5: count: '010' would read as octal"),
        (GOOD + "count: 12:30\n", "f.yaml:5: count: '12:30' would read as base 60"),
        (GOOD + "count: yes\n", "f.yaml:5: count: 'yes' is ambiguous"),
        (GOOD + "count: 2026-11-27\n", "f.yaml:5: count: Input should be a valid integer"),
        (GOOD + "count: !!binary aGk=\n", "f.yaml:5: count: expected text, a number, true, false"),
        (GOOD + "count: '3'\n", "f.yaml:5: count: Input should be a valid integer; got '3'"),
        ("name: x\n", "f.yaml:1: inner: key 'inner' is missing"),
        ("name: [x\n", "f.yaml:2: not YAML"),
        ("- a\n- b\n", "f.yaml:1: expected a mapping"),
        (GOOD + "count: {value: 2, source: a, note: b, c}\n", "f.yaml:5: count: unknown key 'c'"),
    ],
)
def test_each_mistake_has_its_line(text: str, expected: str) -> None:
    assert expected in message(text)
    assert "\n" not in message(text)


def test_all_mistakes_of_a_document_are_told_at_once() -> None:
    with pytest.raises(DescriptionError) as error:
        loads(GOOD + "  dely: 3ns\ncont: 3\n", "f.yaml").build(Outer)
    assert [line.split(": ")[0] for line in str(error.value).split("\n")] == [
        "f.yaml:6",
        "f.yaml:5",
    ]


def test_a_misspelt_required_key_is_told_once() -> None:
    assert message(GOOD.replace("  delay:", "  dely:")) == (
        "f.yaml:3: inner.dely: unknown key; did you mean 'delay'?"
    )


def test_a_sourced_value_is_flattened_and_its_source_kept() -> None:
    document = loads(GOOD.replace("18ns", "{value: 18ns, source: [assumed], confidence: D}"))
    assert document.build(Outer).inner.delay == 18
    assert list(document.assumed()) == ["inner.delay"]
    override(document, "inner.delay=20ns")
    assert document.build(Outer).inner.delay == 20 and not document.assumed()


@pytest.mark.parametrize(
    ("sources", "source", "expected"),
    [
        ("sources: {jedec: JESD209-5}\n", "jedc", "did you mean 'jedec'?"),
        ("sources: {jedec: JESD209-5}\n", "asumed", "did you mean 'assumed'?"),
        ("", "Assumed", "did you mean 'assumed'?"),
        ("", "a datasheet", None),
        ("sources: {jedec: JESD209-5}\nbased_on: other\n", "ram21", None),
    ],
)
def test_a_source_is_declared_or_refused(sources: str, source: str, expected: str | None) -> None:
    text = f"{sources}rows: {{value: 3, source: {source}}}\n"
    if expected is None:
        assert loads(text).provenance["rows",].source == (source,)
        return
    with pytest.raises(DescriptionError, match=expected.rstrip("?")):
        loads(text)


def test_an_override_is_checked_like_the_file_and_names_itself() -> None:
    document = loads(GOOD, "f.yaml")
    override(document, "inner.dely=3ns")
    with pytest.raises(DescriptionError, match=r"--set inner\.dely=3ns: inner\.dely: unknown key"):
        document.build(Outer)
    with pytest.raises(DescriptionError, match=r"expected dotted\.path=value"):
        override(document, "inner.delay")


def test_missing_binary_and_misnamed_files_are_the_users_mistake(tmp_path: Path) -> None:
    with pytest.raises(DescriptionError, match="no such file"):
        load(tmp_path / "none.yaml")
    (tmp_path / "b.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DescriptionError, match="not UTF-8"):
        load(tmp_path / "b.yaml")
    with pytest.raises(DescriptionError, match="is a directory"):
        load(tmp_path)
    with pytest.raises(DescriptionError, match="did you mean 'lpddr5-6400-x16'"):
        find("memories", "lpddr5-6400-x15")


def test_nearest_suggests_only_what_is_near() -> None:
    assert nearest("schedler", ["scheduler", "refresh"]) == "did you mean 'scheduler'?"
    assert nearest("memorys", ["memory", "memories"]) == "did you mean 'memories'?"
    assert nearest("zzz", ["a", "b"]) == "known: a, b"
    many = [*(f"device-{number}" for number in range(40)), "zebra"]
    assert nearest("zzz", many).startswith("known: 41 names, such as zebra, device-")


@pytest.mark.parametrize("kind", ["memories", "accelerators"])
def test_every_number_of_a_shipped_device_says_where_it_comes_from(kind: str) -> None:
    for name in names(kind):
        document = load(find(kind, name))
        complete(document)
        known = set(document.data["sources"])
        for path, value in document.provenance.items():
            assert value.source and set(value.source) <= known, (name, path, value.source)
        if kind == "memories":
            sourced = {path[1] for path in document.provenance if path[0] == "timing"}
            assert sourced == set(document.data["timing"]), name


def test_quantities_are_exact_and_gb_is_ten_to_the_nine() -> None:
    assert parse_quantity("6.25ns", "time") == Fraction(25, 4)
    assert parse_quantity("1GB", "size") == 10**9
    assert parse_quantity("1GiB", "size") == 2**30
    assert parse_quantity("307.2GB/s", "bandwidth") == 307_200_000_000
    clock = Clock(Fraction("1.25"))
    assert clock.clocks_of_ns(Fraction(18)) == 15 and clock.clocks_of_ns(Fraction("18.75")) == 15
    assert Clock(Fraction("0.625"), 2).clocks_of_ns(Fraction("1")) == 2
    assert Clock(Fraction("0.625"), 2).clocks_of_ns(Fraction("0.8")) == Fraction(3, 2)


def test_expressions_are_read_and_nothing_else_is() -> None:
    values = {"RL": Fraction(17), "WL": Fraction(9), "nBL": Fraction(2)}
    assert evaluate("RL + nBL + 2 - WL", values) == 12
    assert evaluate("max(RL, 2 * WL) + ceil(nBL / 4)", values) == 19
    exact = {"tODTon": Fraction(6, 5)}
    rounded = {"tODTon": Fraction(2)}
    assert evaluate("floor(tODTon) + tODTon", rounded, exact) == 3
    assert evaluate("floor(tODTon + 1) + ceil(2 * tODTon)", rounded, exact) == 5
    assert evaluate("floor(max(tODTon, 1))", rounded) == 2
    for bad in ("__import__('os')", "RL.real", "RL if WL else 0", "RL +", "f(RL)"):
        with pytest.raises(ValueError, match=r"expression|function"):
            names_in(bad)


@pytest.mark.parametrize("name", shared(device_names()))
def test_every_shipped_device_loads_and_holds_what_it_says(name: str) -> None:
    device = load_device(name)
    assert device.capacity_bytes > 0
    if device.given is None:
        held = device.channels * device.memory.organisation.capacity_bytes
        assert device.capacity_bytes <= held
    assert device.digest == load_device(name).digest


def test_the_stated_peaks_of_the_two_accelerators() -> None:
    assert load_device("mlu370-x4").peak_gbps == pytest.approx(307.2)
    assert load_device("a100-80gb").peak_gbps == pytest.approx(2039, rel=1e-5)


def test_settings_reach_the_part_that_has_the_key() -> None:
    device = load_device(
        "mlu370-x4", ["timing.nRCD=20nCK", "controller.read_queue=7", "dma.window=4KiB"]
    )
    assert device.memory.timing_clocks["tRCD"] == 20
    assert device.memory.controller.read_queue == 7
    assert device.accelerator is not None and device.accelerator.dma.window == 4096
    swapped = load_device("mlu370-x4", ["memory=hbm2e-3.2"])
    assert swapped.memory.organisation.pseudochannels == 2


def test_rows_that_could_hold_an_open_pair_for_ever_are_refused() -> None:
    document = load(find("memories", "lpddr5-6400-x16"))
    lazy = copy.deepcopy(document)
    lazy.put(("activate", "second"), "lazy", Mark("test"))
    with pytest.raises(DescriptionError, match="REFPB must hold up ACT1"):
        lazy.build(MemorySpec)
    rows = document.data["constraints"]
    rows.append({"scope": "rank", "after": "RD", "before": "ACT", "delay": 100})
    with pytest.raises(DescriptionError, match="must hold up ACT1, not ACT2"):
        document.build(MemorySpec)


def test_threads_may_read_expressions_at_the_same_time() -> None:
    def read(first: int) -> Fraction:
        texts = [f"max({first + i}, {i} + tRCD * 2 - 1)" for i in range(300)]
        return sum((evaluate(text, {"tRCD": Fraction(3)}) for text in texts), Fraction(0))

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(read, range(40)))
    assert found == [sum(max(first + i, i + 5) for i in range(300)) for first in range(40)]


@pytest.mark.parametrize(
    ("device", "swap", "mts"),
    [  # a die of the same family stays; a clock never; of another family nothing
        ("jetson-agx-orin", ["memory=lpddr5-6400-x16-8b"], 6400),
        ("jetson-agx-orin", ["memory=hbm2e-3.2", "capacity=32GiB"], 3200),
        ("grace-cpu", ["memory=lpddr5-6400-x16"], 6400),
        ("dgx-spark-gb10", ["memory=hbm3-6.4", "capacity=16GiB"], 6400),
        ("a100-80gb", ["memory=hbm2-2.0", "capacity=40GiB"], 2000),
        ("a100-80gb", ["memory=hbm2-2.0", "memory_set={density: 16Gb}"], 2000),
        ("a100-80gb", ["memory=hbm2e-3.2"], 3186),
    ],
)
def test_does_another_memory_bring_its_own_die_and_clock(
    device: str, swap: list[str], mts: float
) -> None:
    memory = load_device(device, swap).memory
    rate = 1000 * memory.clock.beats_per_ck / float(memory.clock.tCK)
    assert rate == pytest.approx(mts, rel=1e-3)


@pytest.mark.parametrize("written", ["{timing: {tRFCab: 500ns}}", "{timing.tRFCab: 500ns}"])
def test_is_an_entry_of_a_memory_laid_over_nested_or_with_a_dot(written: str) -> None:
    memory = load_device("a100-80gb", [f"memory_set={written}"]).memory
    assert float(memory.timing["tRFCab"][1]) == 500 and "tRCDRD" in memory.timing


def test_what_is_put_stays_as_it_was_given() -> None:
    document, given = loads("kind: toy", "toy.yaml"), {"buckets": [1, 2]}
    document.put(("first",), given, Mark("test"))
    document.copy(("first",), ("second",))
    document.put(("second", "buckets"), [3], Mark("test"))
    document.put(("first", "buckets", "0"), 4, Mark("test"))
    assert given == {"buckets": [1, 2]}
    assert document.data == {
        "kind": "toy",
        "first": {"buckets": [4, 2]},
        "second": {"buckets": [3]},
    }
