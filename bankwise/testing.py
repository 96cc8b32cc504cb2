"""Contract tests for plug-ins, for their authors: what to run before results are believed.

    from bankwise.testing import check

    check("my_router.py")                           # of a file; or of what an installed package has
    check("my_policy.py", {"room": {"tokens": 32}}) # options, where defaults are not enough

`check` serves small workloads with each class that the file defines, twice, under an auditor: every
request ends once with all of its tokens, memory returns to empty, and both runs are alike. An
allocator also lives through random reservations beside a table of who holds which slot, and a
predictor is asked for parts of its requests. `ContractBroken` says what does not hold. It needs no
test framework; with pytest a test is one line.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bankwise.contract_broken import ContractBroken
from hwmodel.specs.controller_rule import read_and_announce

__all__ = ["ContractBroken", "check", "check_named"]


def check(
    file: str | Path, options: Mapping[str, Mapping[str, Any]] | None = None, seconds: float = 60.0
) -> list[str]:
    """Load a plug-in file and check all that it defines.

    Args:
        file: the Python file, as for `--plugin`.
        options: name of what it defines -> the options to check it with; its defaults where none.
        seconds: what each may take; one that loops for ever is named with its line.

    Returns a line for each thing checked. Raises ContractBroken, and DescriptionError where the
    file, its options or what a method returns is at fault; each names the file.
    """
    read_and_announce([file])  # a rule of the controller comes before the kernels are loaded
    from bankwise.contract import check_file  # heavy

    return check_file(file, options, seconds)


def check_named(kind: str, name: str, options: Mapping[str, Any] | None = None) -> str:
    """Check what is registered under a name, whether it ships or came from a plug-in.

    Args:
        kind: `policy`, `scheduler`, `predictor`, `placement`, `connector`, `controller`, or `rule`
            of the memory controller, with all of its options.
        name: its name.
        options: of it.

    Returns what was checked, in words. Raises ContractBroken and DescriptionError.
    """
    from bankwise.contract import check_one  # heavy

    return check_one(kind, name, options)
