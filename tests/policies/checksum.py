"""Does something say what it said, to six digits?"""

from __future__ import annotations

import json
import zlib
from typing import Any

import numpy as np


def checksum(value: Any) -> str:
    """Of numbers, strings, and what holds them, at any depth."""
    return f"{zlib.crc32(json.dumps(_rounded(value), sort_keys=True).encode()):08x}"


def _rounded(value: Any) -> Any:
    match value:
        case dict():
            return {str(key): _rounded(each) for key, each in value.items()}
        case list() | tuple() | np.ndarray():
            return [_rounded(each) for each in value]
        case bool() | str() | None:
            return value
        case _:
            return f"{float(value):.6g}"
