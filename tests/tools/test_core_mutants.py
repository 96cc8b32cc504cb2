"""Are the faults that are put into the fast core still of expressions that it has?"""

from __future__ import annotations

import pytest

from tools.mutation.core_mutants import CORE, FAULTS, ROOT, Fault


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.name for fault in FAULTS])
def test_each_fault_changes_one_expression(fault: Fault) -> None:
    assert (ROOT / CORE / fault.file).read_text(encoding="utf-8").count(fault.before) == 1
