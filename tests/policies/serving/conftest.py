"""What tests of plug-ins share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from policies.serving.plugins import KINDS, LOADED


@pytest.fixture
def unplugged() -> Iterator[None]:
    """What was registered goes again."""
    before = {word: dict(kind.known) for word, kind in KINDS.items()}
    yield
    for word, kind in KINDS.items():
        kind.known.clear()
        kind.known.update(before[word])
    LOADED.clear()
