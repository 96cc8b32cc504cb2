"""The best of a study as a sweep, which `bankwise run` takes."""

from __future__ import annotations

import copy
import json
from typing import Any

from hwmodel.description.description import Document, Mark
from sweeps.study.space import Overrides
from sweeps.study.study_spec import Study

_POLICY = "serving.policy"


def best_sweep(study: Study, overrides: Overrides, name: str) -> dict[str, Any]:
    """A sweep of the best policy against the base's and those references that differ from it in
    the policy alone, on seeds the study did not search on.

    Where the best differs from the base in more than the policy, it stands alone.
    """
    base = _changed(study, overrides)
    policies = [base["serving"].pop("policy")]
    if all(f"{path}.".startswith(f"{_POLICY}.") for path in overrides):
        policies.append(_changed(study, {})["serving"].get("policy", "paged"))
        policies += [
            point.overrides[_POLICY] for point in study.points if set(point.overrides) == {_POLICY}
        ]
    unlike = {json.dumps(_spelt(policy), sort_keys=True): _spelt(policy) for policy in policies}
    base["seed"] = study.base.seed + 1
    return {
        "kind": "sweep",
        "name": f"{study.spec.name}-best",
        "summary": f"{name} of study {study.spec.name}, beside what it was compared with",
        "base": base,
        "axes": {_POLICY: list(unlike.values())},
        "compare": _POLICY,
    }


def _changed(study: Study, overrides: Overrides) -> dict[str, Any]:
    """The base's description with overrides."""
    document = Document(copy.deepcopy(study.document.data["base"]), study.document.file)
    for path, value in overrides.items():
        document.put(tuple(path.split(".")), copy.deepcopy(value), Mark(document.file))
    return document.data


def _spelt(policy: Any) -> Any:
    """`paged` is short for `{name: paged}`."""
    return {"name": policy} if isinstance(policy, str) else policy
