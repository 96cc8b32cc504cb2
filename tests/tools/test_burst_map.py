"""Does the map of bursts show each burst and way once, and what is sure?"""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from tools.burst_map import WAYS, draw, rows_of
from tools.figures import Value

VALUES: dict[str, Value] = {
    "sooner/mild, 2 times/replicas": 0.5,
    "sooner/mild, 2 times/dropping": [41.2, 14.0, 119.0],
    "sooner/mild, 2 times/swap": [0.8, 0.7, 1.1],
    "kept/mild, 2 times/dropping": [1.0, 1.0, 1.0],
}


def test_each_burst_and_way_is_a_row() -> None:
    dropping, swap = rows_of(VALUES)
    assert (dropping["burst"], dropping["way"], dropping["text"]) == (
        "mild, 2 times",
        WAYS[0],
        "41",
    )
    assert dropping["sure"] and not swap["sure"] and swap["text"] == "0.8"


def test_the_picture_has_every_number(tmp_path: Path) -> None:
    draw(VALUES, tmp_path / "map.svg")
    texts = {each.strip() for each in ElementTree.parse(tmp_path / "map.svg").getroot().itertext()}
    assert {"41", "0.8", "mild, 2 times", "dropping", "swap"} <= texts
