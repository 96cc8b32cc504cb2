"""Are the figures of docs/hybrids.md those of `bankwise fit --states`?"""

from __future__ import annotations

import re
from pathlib import Path

from hwmodel.specs.device import load_device
from hwmodel.specs.transformer import load_model
from sweeps.ask.fit import Question
from sweeps.ask.states import Options, states

PAGE = Path(__file__).parents[3] / "docs" / "hybrids.md"


def test_the_page_says_what_is_computed() -> None:
    rows = re.findall(r"^\| `([\w-]+)` \| (.+) \|$", PAGE.read_text(), re.MULTILINE)
    told = {name: cells.split(" | ") for name, cells in rows if "%" in cells}
    found = states(
        load_device("a100-80gb"), load_model("qwen3.5-9b"), list(told), Question(), Options()
    )
    for name, cells in told.items():
        held = found.held[name]
        assert cells == [
            f"{found.length[name]:,.0f}",
            *(f"{each.requests}, {100 * each.waste:.1f} %" for each in held.values()),
            f"{found.even[name]:.2f}",
        ]
