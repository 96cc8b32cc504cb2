"""Is a flowchart drawn with all of its nodes, and do its arrows go right and down?"""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

from tools.flowchart import places, read, svg

TEXT = """
flowchart TD
  top --> a.two
  subgraph a
    a.one --> a.two
    a.two --> a.three
    a.one --> a.three
  end
  subgraph b
    b.one --> b.two
  end
  a.three --> b.one
"""


def test_nodes_stand_in_their_bands_behind_what_leads_to_them() -> None:
    found = places(read(TEXT))
    assert [found[f"a.{name}"].x for name in ("one", "two", "three")] == [26, 136, 246]
    assert found["top"].y < found["a.one"].y == found["a.three"].y < found["b.one"].y


def test_arrows_of_the_architecture_go_right_in_a_floor_and_down_between_floors() -> None:
    page = (Path(__file__).parents[2] / "docs/architecture.md").read_text(encoding="utf-8")
    for text in re.findall(r"```mermaid\n(.*?)```", page, re.DOTALL):
        chart = read(text)
        found = places(chart)
        assert len(set(found.values())) == len(found) == len({n for a in chart.arrows for n in a})
        for start, end in ((found[a], found[b]) for a, b in chart.arrows):
            assert start.x < end.x if start.band == end.band else start.y < end.y


def test_a_drawing_is_sound_and_on_one_line() -> None:
    drawn = svg(TEXT)
    assert "\n" not in drawn
    labels = [text.text for text in ElementTree.fromstring(drawn).iter("text")]
    assert sorted(map(str, labels)) == sorted(
        ["a", "b", "top", "one", "two", "three", "one", "two"]
    )
