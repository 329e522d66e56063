"""A headless Chromium, driven through the DevTools protocol over a pipe: what a page asks for, complains about and shows."""

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress

FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-extensions", "--remote-debugging-pipe", "--hide-scrollbars",
]  # fmt: skip
SECONDS = 60.0
# The browser reads requests from descriptor 3 and writes answers to 4.
AS_3_AND_4 = "import os, sys; a = sys.argv; os.dup2(int(a[1]), 3); os.dup2(int(a[2]), 4); os.execv(a[3], a[3:])"


def _high(descriptor):
    """The same pipe under a number that 3 and 4 cannot collide with."""
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(descriptor)
    return moved


def chromium():
    """Where the browser is, by CHROMIUM or on the path; None without one."""
    named = os.environ.get("CHROMIUM")
    return named if named else next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Browser:
    """One page of one fresh profile."""

    def __init__(self, path):
        self._profile = tempfile.TemporaryDirectory(prefix="maxaffine-chromium-", ignore_cleanup_errors=True)
        profile = f"--user-data-dir={self._profile.name}"
        (theirs_in, self._out), (self._in, theirs_out) = (tuple(map(_high, os.pipe())) for _ in range(2))
        self._process = subprocess.Popen(
            [sys.executable, "-c", AS_3_AND_4, str(theirs_in), str(theirs_out), path, profile, *FLAGS],
            pass_fds=(theirs_in, theirs_out), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(theirs_in)
        os.close(theirs_out)
        self._buffer, self._count, self._session = b"", 0, None
        self.events = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with suppress(Exception):
            self._session = None
            self.call("Browser.close")
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._out)
        os.close(self._in)
        self._profile.cleanup()

    def call(self, method, **parameters):
        """The answer to one request; events that come before it are kept."""
        self._count += 1
        number = self._count
        message = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + SECONDS
        while True:
            said = self._next(deadline)
            if said.get("id") == number:
                if "error" in said:
                    raise RuntimeError(f"{method}: {said['error']}")
                return said["result"]
            self.events.append(said)

    def _next(self, deadline):
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError("the browser says nothing")
            block = os.read(self._in, 1 << 16)
            if not block:
                raise EOFError("the browser is gone")
            self._buffer += block
        line, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(line)

    def open(self, url):
        """Load a page to its end."""
        self.call("Page.navigate", url=url)
        deadline = time.monotonic() + SECONDS
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next(deadline))

    def evaluate(self, expression):
        """The value of an expression on the page."""
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)["result"].get("value")

    def seen(self, *methods):
        """The parameters of the events of these kinds so far."""
        return [event["params"] for event in self.events if event.get("method") in methods]

    def screenshot(self, width, height, dark=False):
        """The whole page as PNG."""
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=scheme)
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])
