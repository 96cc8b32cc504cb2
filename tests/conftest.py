"""Hypothesis profiles: `ci` (default) is the same on every run; `long` searches further."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import tempfile

from hypothesis import HealthCheck, settings

# every simulation is done once a session, whichever worker asks for it, and none is left behind
if "BANKWISE_PROBE_CACHE" not in os.environ:
    os.environ["BANKWISE_PROBE_CACHE"] = tempfile.mkdtemp(prefix="bankwise-probes-")
    atexit.register(shutil.rmtree, os.environ["BANKWISE_PROBE_CACHE"], ignore_errors=True)

# Ctrl-C is tested: a shell's background job ignores it, and so would what is started from here
signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile(
    "ci", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "long", parent=settings.get_profile("ci"), derandomize=False, max_examples=3000
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
