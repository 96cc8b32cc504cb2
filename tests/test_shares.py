"""What is left to the long suite is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.shares import EVERY, LONG_ALONE

HERE = Path(__file__).parent


@pytest.mark.parametrize("name", [*EVERY, *sorted(LONG_ALONE)])
def test_a_name_is_that_of_a_test(name: str) -> None:
    file, *parts = name.split("::")
    text = (HERE / file).read_text()
    for part in parts:
        assert f"class {part}" in text or f"def {part}(" in text
