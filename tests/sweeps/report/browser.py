"""A headless Chromium, driven over a pipe by its own protocol: no library, no port, no network."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
_FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
    "--hide-scrollbars", "--no-first-run", "--disable-background-networking",
    "--disable-extensions", "--remote-debugging-pipe",
)  # fmt: skip


class Browser:
    """One page in a browser of its own, whose network is off. `errors`: what its console said."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._number = 0
        self._session = ""
        self._rest = b""
        self.errors: list[str] = []

    def __enter__(self) -> Self:
        theirs_in, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()
        self._in, self._out = ours_in, ours_out
        log = os.open(self._folder / "chromium.log", os.O_WRONLY | os.O_CREAT)
        # numbers that the places the browser wants do not overwrite: it reads from 3, writes to 4
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in (theirs_in, theirs_out, log)]
        assert CHROMIUM is not None
        self._process = os.posix_spawn(
            CHROMIUM, [CHROMIUM, *_FLAGS, f"--user-data-dir={self._folder / 'profile'}"],
            {**os.environ, "HOME": str(self._folder)},
            file_actions=[
                (os.POSIX_SPAWN_DUP2, end, place)
                for end, place in zip([*ends, ends[2]], (3, 4, 1, 2), strict=True)
            ],
        )  # fmt: skip
        for end in (theirs_in, theirs_out, log, *ends):
            os.close(end)
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call(
            "Network.emulateNetworkConditions",
            offline=True, latency=0, downloadThroughput=0, uploadThroughput=0,
        )  # fmt: skip
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._session = ""
        with suppress(BrokenPipeError):
            self.call("Browser.close")
        os.waitpid(self._process, 0)
        os.close(self._in)
        os.close(self._out)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and wait for its answer."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            found = self._read()
            if found.get("id") == self._number:
                assert "error" not in found, found
                result: dict[str, Any] = found["result"]
                return result
            self._note(found)

    def until(self, method: str) -> dict[str, Any]:
        """Wait for an event."""
        while (found := self._read()).get("method") != method:
            self._note(found)
        parameters: dict[str, Any] = found["params"]
        return parameters

    def open(self, page: Path, width: int, dark: bool = False) -> None:
        """Load a file at this width, in pixels."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=900, deviceScaleFactor=1, mobile=False,
        )  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url=page.absolute().as_uri())
        self.until("Page.loadEventFired")

    def value(self, expression: str) -> Any:
        """What a JavaScript expression, or the promise that it is, comes to, in JSON's types."""
        found = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def picture(self, file: Path) -> None:
        """The whole page as PNG."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        found = self.call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        file.write_bytes(base64.b64decode(found["data"]))

    def _note(self, event: dict[str, Any]) -> None:
        if event.get("method") == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(event["params"]["exceptionDetails"]))
        elif event.get("method") == "Runtime.consoleAPICalled":
            self.errors.append(json.dumps(event["params"]["args"]))
        elif event.get("method") == "Log.entryAdded":
            self.errors.append(event["params"]["entry"]["text"])

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            got = os.read(self._in, 1 << 16)
            assert got, "the browser has gone"
            self._rest += got
        line, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(line)
        return found
