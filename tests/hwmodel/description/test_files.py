"""Is what is read of files known by what they hold, and steady while a run is measured?"""

from __future__ import annotations

from pathlib import Path

import pytest

from hwmodel.description.files import by_contents, read_text, sha256_of, steady


def test_an_edited_file_is_read_again_and_an_equal_one_is_not(tmp_path: Path) -> None:
    file, made = tmp_path / "a", []

    @by_contents
    def text(path: str) -> str:
        made.append(path)
        return read_text(path)

    file.write_text("one")
    assert text(str(file)) == text(str(file)) == "one"
    file.write_text("two")
    assert text(str(file)) == "two"
    file.write_text("two")  # saved again, as it was
    assert text(str(file)) == "two" and len(made) == 2


def test_what_another_kept_value_has_read_counts_too(tmp_path: Path) -> None:
    file = tmp_path / "a"
    digest = by_contents(sha256_of)
    outer = by_contents(lambda path: digest(path)[:8])
    file.write_text("one")
    first = outer(str(file)), outer(str(file))  # the inner one is made, then found
    outer.cache_clear()
    assert outer(str(file)) == first[0] == first[1]
    file.write_text("two")
    assert outer(str(file)) != first[0]


def test_a_file_that_is_gone_is_missed(tmp_path: Path) -> None:
    file, text = tmp_path / "a", by_contents(read_text)
    file.write_text("one")
    assert text(str(file)) == "one"
    file.unlink()
    with pytest.raises(FileNotFoundError):
        text(str(file))


def test_a_run_has_one_description_whatever_is_saved_meanwhile(tmp_path: Path) -> None:
    file, text = tmp_path / "a", by_contents(read_text)

    @steady
    def run() -> list[str]:
        file.write_text("one")
        before = text(str(file))
        file.write_text("two")
        return [before, text(str(file))]

    file.write_text("none")
    assert text(str(file)) == "none"
    assert run() == ["one", "one"]
    assert text(str(file)) == "two"
