"""Does a memory inherit what it leaves out, and an accelerator borrow what no data sheet says?"""

from __future__ import annotations

from pathlib import Path

import pytest

from hwmodel.description.description import DescriptionError
from hwmodel.specs.device import load_device
from sweeps.cli.inspection import inspect

FACTS = """\
kind: accelerator
name: mine
summary: a card
based_on: mlu370-x4
memory: lpddr5-6400-x16
channels: 8
capacity: 8GiB
dma: {engines: 4, window: 4KiB}
compute: {fp16: 10TFLOPS}
"""


def write(folder: Path, text: str = FACTS) -> str:
    (folder / "mine.yaml").write_text(text)
    return str(folder / "mine.yaml")


def test_what_is_missing_is_as_the_other_has_it_and_assumed(tmp_path: Path) -> None:
    device = load_device(write(tmp_path))
    assert device.accelerator is not None
    dma, compute = device.accelerator.dma, device.accelerator.compute
    assert (dma.engines, dma.window, dma.request, dma.strided) == (4, 4096, 512, True)
    assert (compute.fp16, compute.decode_efficiency) == (10e12, 0.5)
    assert device.accelerator.channel_hash == "rotate"
    assert device.memory.controller.refresh == "per_bank"
    assumed = {path for path in device.assumed if not path.startswith("memory:")}
    assert {"interleave", "channel_hash", "dma.request", "compute.overlap"} <= assumed
    assert "controller.scheduler" in assumed and "dma.window" not in assumed


def test_facts_are_not_borrowed(tmp_path: Path) -> None:
    device = load_device(write(tmp_path))
    assert device.accelerator is not None
    assert (device.accelerator.compute.bf16, device.accelerator.host) == (None, None)
    text = FACTS.replace("channels: 8\n", "").replace("engines: 4, ", "")
    with pytest.raises(DescriptionError) as error:
        load_device(write(tmp_path, text))
    lines = str(error.value).splitlines()
    assert [line.split(": ")[1] for line in lines] == ["channels", "dma.engines"]


def test_null_leaves_out_what_the_base_has(tmp_path: Path) -> None:
    text = FACTS.replace("window: 4KiB", "window: 4KiB, minimum_access: null")
    device = load_device(write(tmp_path, text + "derate: null\n"))
    assert device.accelerator is not None
    assert (device.accelerator.dma.minimum_access, device.derate) == (None, 1)


def test_lists_of_addresses_and_the_address_map_are_borrowed(tmp_path: Path) -> None:
    base = FACTS.replace("window: 4KiB", "gather: {elements: 16, element_cost: 5ns}")
    base += "address_map: [column:6, bankgroup:2, bank:2, row]\n"
    (tmp_path / "base.yaml").write_text(base)
    device = load_device(write(tmp_path, FACTS.replace("mlu370-x4", "./base.yaml")))
    assert device.accelerator is not None and device.accelerator.dma.gather is not None
    assert device.accelerator.dma.gather.elements == 16
    assert device.memory.resolved_address_map()[0] == ("column", 6)
    other = FACTS.replace("mlu370-x4", "./base.yaml").replace("6400-x16", "6400-x16-bl32")
    assert load_device(write(tmp_path, other)).memory.resolved_address_map()[0][0] == "bankgroup"


def test_overrides_come_first(tmp_path: Path) -> None:
    device = load_device(write(tmp_path), ["dma.request=1KiB", "based_on=a100-80gb"])
    assert device.accelerator is not None
    assert (device.accelerator.dma.request, device.accelerator.interleave) == (1024, 1024)
    assert "dma.request" not in device.assumed


MEMORY = """\
kind: memory
name: faster
summary: the same with other numbers
based_on: lpddr5-6400-x16
timing:
  tRCD: {value: 15ns, source: assumed}
  nLECC: null
data:
  read: {latency: RL, segments: [[0, nBL]]}
sync: null
commands: {CAS: null}
constraint_changes:
  - {scope: rank, after: [WRA, WR], before: [RD, RDA], delay: 20}
  - {scope: rank, after: [RD, RDA], before: [WR, WRA], delay: 11}
  - {scope: bankgroup, after: [RD, RDA], before: [WR, WRA], delay: 13}
  - {scope: rank, after: CAS, before: [RD, RDA], delay: null}
  - {scope: rank, after: CAS, before: [WR, WRA], delay: null}
  - {scope: other_rank, after: [RD, RDA], before: [WR, WRA], delay: 12}
  - {scope: other_rank, after: [WR, WRA], before: [RD, RDA], delay: 9}
  - {scope: bank, after: PRE, before: PRE, delay: 3}
"""


def test_a_memory_is_its_base_but_for_what_it_states(tmp_path: Path) -> None:
    base, device = load_device("lpddr5-6400-x16"), load_device(write(tmp_path, MEMORY))
    ours, theirs = device.memory, base.memory
    assert ours.timing["tRCD"] == ("ns", 15) and ours.sync is None
    assert "nLECC" not in ours.timing and "CAS" not in ours.commands
    assert (ours.organisation, ours.energy) == (theirs.organisation, theirs.energy)
    assert ours.controller == theirs.controller
    changed = {i for i, row in enumerate(theirs.constraints) if row not in ours.constraints}
    assert len(changed) == 7 and len(ours.constraints) == len(theirs.constraints) - 2 + 1
    assert ours.constraints[-1].delay == "3"
    assert ours.constraints[0] == theirs.constraints[0]
    turn = next(
        i
        for i, row in enumerate(theirs.constraints)
        if row.scope == "rank" and "RD" in row.after and "WR" in row.before
    )
    assert ours.constraints[turn].delay == "11"
    assert "timing.tRCD" in device.assumed and "timing.nLECC" not in device.assumed
    assert device.assumed["controller.scheduler"] == "frfcfs"
    assert device.confidence["timing.tRP"] == "A"
    assert "based_on" not in device.config["memory"]


def test_a_chain_of_bases_overrides_and_densities(tmp_path: Path) -> None:
    (tmp_path / "first.yaml").write_text(MEMORY.replace("faster", "first"))
    text = "kind: memory\nname: mine\nsummary: a\nbased_on: first.yaml\ntiming: {tRP: 20ns}\n"
    device = load_device(write(tmp_path, text), ["timing.tRAS=40ns", "density=16Gb"])
    wanted = {"tRCD": 15, "tRP": 20, "tRAS": 40, "tRFCab": 280}
    assert {name: device.memory.timing[name][1] for name in wanted} == wanted
    assert device.memory.organisation.rows == 65536
    assert load_device(write(tmp_path, text), ["based_on=hbm2-2.0"]).memory.timing["tRP"][1] == 20


def test_the_digest_follows_the_base(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(MEMORY)
    text = "kind: memory\nname: mine\nsummary: a\nbased_on: base.yaml\n"
    before = load_device(write(tmp_path, text)).digest
    assert load_device(write(tmp_path, text)).digest == before
    (tmp_path / "base.yaml").write_text(MEMORY.replace("15ns", "16ns"))
    assert load_device(write(tmp_path, text)).digest != before


def test_what_is_inherited_counts_in_the_list_of_assumptions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert inspect([write(tmp_path, MEMORY)], [], assumed=True) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "  assumed: timing.tRCD = 15ns" in lines
    assert "  assumed: controller.scheduler = frfcfs" in lines


def test_a_source_that_neither_file_declares_is_a_mistake(tmp_path: Path) -> None:
    known = "sources: {datasheet: its data sheet}\n"
    wrong = FACTS.replace("channels: 8", "channels: {value: 8, source: datashet}")
    with pytest.raises(DescriptionError, match=r"channels: no source 'datashet'.* 'datasheet'"):
        load_device(write(tmp_path, known + wrong))
    lent = FACTS.replace("channels: 8", "channels: {value: 8, source: mluops}")
    load_device(write(tmp_path, "sources: {brief: a brief}\n" + lent))  # a source of the base


OWN_TIMING = """\
kind: memory
name: mine
summary: a memory
based_on: lpddr5-6400-x16
timing: {tRRDs: 50ns}
"""
ROW = "constraint_changes: [{scope: bank, after: RD, before: RD, delay: tRRDs, source: assumed}]"


def test_a_timing_that_nothing_reads_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(DescriptionError, match=r"timing.tRRDs: the base has no .* mean 'tRRD'"):
        load_device(write(tmp_path, OWN_TIMING))
    told = OWN_TIMING.replace("a memory", "a memory with tRRDs")
    with pytest.raises(DescriptionError, match=r"timing.tRRDs: the base has no "):
        load_device(write(tmp_path, told))
    assert load_device(write(tmp_path, OWN_TIMING + ROW)).memory.timing["tRRDs"]
