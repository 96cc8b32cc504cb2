"""What does `bankwise validate schedules` print, and how does it end?"""

from __future__ import annotations

import copy
import json
from pathlib import Path

from tests.policies.engines.test_vllm_schedules import EXAMPLE, written
from tests.sweeps.cli.test_command_line import bankwise


def test_cases_and_their_first_difference(tmp_path: Path) -> None:
    other = copy.deepcopy({**EXAMPLE, "name": "other"})
    other["steps"][1][2] = [0]
    assert bankwise("validate", "schedules", str(written(tmp_path, EXAMPLE)))[0] == 0
    file = str(written(tmp_path, EXAMPLE, other))
    code, out, _ = bankwise("validate", "schedules", file)
    assert code == 1 and "step 1: preemption: expected [0], found []" in out
    assert "1 of 2 cases agree in every step" in out
    code, out, _ = bankwise("validate", "schedules", file, file)
    assert code == 1 and "2 of 4 cases agree in every step" in out
    code, out, _ = bankwise("validate", "schedules", file, "--json")
    first, second = json.loads(out)
    assert code == 1 and first["difference"] is None and first["agreeing"] == 3
    assert second["difference"] == {"step": 1, "what": "preemption", "expected": [0], "ours": []}


def test_a_mistake_is_one_line(tmp_path: Path) -> None:
    wrong = {**EXAMPLE, "confg": {}}
    code, out, err = bankwise("validate", "schedules", str(written(tmp_path, wrong)))
    assert (code, out, err.count("\n")) == (2, "", 1) and "did you mean 'config'" in err
    large = {**EXAMPLE, "trace": {**EXAMPLE["trace"], "arrival": [10**26]}}
    code, out, err = bankwise("validate", "schedules", str(written(tmp_path, large)))
    assert (code, out, err.count("\n")) == (2, "", 1) and "trace.arrival" in err
