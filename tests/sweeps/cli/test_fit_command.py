"""Does `bankwise fit` answer as a user types it?"""

from __future__ import annotations

import json
from pathlib import Path

from tests.sweeps.cli.test_command_line import bankwise


def test_a_pair_in_any_order_and_its_page(tmp_path: Path) -> None:
    done = bankwise("fit", "llama-3.1-8b", "rtx-4090", "--save", "a.html", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "llama-3.1-8b on rtx-4090: fits, with 40,768 tokens of KV: 31 requests" in done.stdout
    assert "wrote a.html" in done.stdout and "<table" in (tmp_path / "a.html").read_text()
    same = bankwise("fit", "rtx-4090", "llama-3.1-8b", "--json", cwd=tmp_path)
    found = json.loads(same.stdout)
    assert found["kv_tokens"] == 40768 and found["policies"]["paged"]["at_once"] == 31
    assert found["rates"]["alone"]["bound"] == "memory"


def test_a_device_alone_is_a_table_and_its_picture(tmp_path: Path) -> None:
    done = bankwise("fit", "mlu370-x4", "--weights", "w4a16", "--save", "b.html", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "qwen2.5-32b" in done.stdout and "fits with --cards" in done.stdout
    assert "Capacity against what models need" in (tmp_path / "b.html").read_text()
