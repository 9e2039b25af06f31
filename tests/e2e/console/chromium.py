# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""A headless Chromium, driven by the DevTools protocol over two pipes: no driver, no port, no package of PyPI."""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

LIMIT = 30  # seconds for anything that the page is waited for
FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync", "--disable-extensions", "--mute-audio", "--force-device-scale-factor=1",
         "--remote-debugging-pipe"]
KEYS = {"Enter": (13, "\r"), "Escape": (27, None), "Tab": (9, None), "ArrowLeft": (37, None), "ArrowUp": (38, None), "ArrowRight": (39, None),
        "ArrowDown": (40, None), "Home": (36, None), "End": (35, None), "F2": (113, None), "Delete": (46, None)}


def find():
    """The program, or None."""
    return shutil.which("chromium")


class Chromium:
    """One browser with one page at a time. Not for several threads."""

    def __init__(self, program):
        self.profile = tempfile.TemporaryDirectory(prefix="rivulet-chromium-")
        to_browser, self.write = os.pipe()
        self.read, from_browser = os.pipe()
        # Chromium reads from descriptor 3 and writes to 4.
        command = ["bash", "-c", f'exec "$0" "$@" 3<&{to_browser} 4>&{from_browser}', program, *FLAGS, f"--user-data-dir={self.profile.name}", "about:blank"]
        self.process = subprocess.Popen(command, pass_fds=(to_browser, from_browser), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL, env={**os.environ, "HOME": self.profile.name})
        os.close(to_browser)
        os.close(from_browser)
        self.buffer, self.count, self.events, self.session = b"", 0, [], None
        self.version = self.call("Browser.getVersion")["product"]

    def close(self):
        try:
            self.session = None
            self.call("Browser.close")
        except (OSError, TimeoutError):
            self.process.kill()
        self.process.wait(LIMIT)
        os.close(self.read)
        os.close(self.write)
        shutil.rmtree(self.profile.name, ignore_errors=True)  # its other processes may still write there
        self.profile.cleanup()

    # ---- The protocol.

    def _receive(self, deadline):
        """The next message."""
        while b"\0" not in self.buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.read], [], [], left)[0]:
                raise TimeoutError("Chromium did not answer in time")
            piece = os.read(self.read, 1 << 20)
            if not piece:
                raise OSError("Chromium has ended")
            self.buffer += piece
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, **params):
        self.count += 1
        message = {"id": self.count, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.write, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + 2 * LIMIT
        while True:
            answer = self._receive(deadline)
            if "id" not in answer:
                self.events.append(answer)
            elif answer["id"] == message["id"]:
                if "error" in answer:
                    raise OSError(f"{method}: {answer['error']['message']}")
                return answer["result"]

    def open(self, url, width=1280, height=800, dark=False):
        """A new page of a browser without a past; the one before it is closed."""
        if self.session:
            self.session = None
            self.call("Target.disposeBrowserContext", browserContextId=self.context)
        self.context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", url="about:blank", browserContextId=self.context)["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.events = []
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.resize(width, height)
        self.prefer(dark)
        self.navigate(url)

    def navigate(self, url):
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'")

    def resize(self, width, height):
        touch = width < 600
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=touch)
        self.call("Emulation.setTouchEmulationEnabled", enabled=touch)

    def prefer(self, dark, reduced_motion=True):
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
                    {"name": "prefers-reduced-motion", "value": "reduce" if reduced_motion else "no-preference"}]
        self.call("Emulation.setEmulatedMedia", features=features)

    # ---- The page.

    def run(self, expression):
        """The value of a JavaScript expression, awaited."""
        result = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True, userGesture=True)
        if "exceptionDetails" in result:
            details = result["exceptionDetails"]
            raise AssertionError(f"{expression}: {details.get('exception', {}).get('description', details['text'])}")
        return result["result"].get("value")

    def wait(self, condition, limit=LIMIT):
        """Until the condition is true."""
        deadline = time.monotonic() + limit
        while time.monotonic() < deadline:
            try:
                value = self.run(f"""(async () => {{
                    const end = performance.now() + 2000;
                    for (;;) {{
                      const value = Boolean({condition});
                      if (value || performance.now() > end) return value;
                      await new Promise((next) => setTimeout(next, 10));
                    }}
                  }})()""")
            except OSError:
                continue  # the page was just being left
            if value:
                return
        raise AssertionError(f"not within {limit} s: {condition}; the page: {self.run('document.body.innerText')[:2000]}")

    def type(self, text):
        self.call("Input.insertText", text=text)

    def press(self, key, shift=False):
        code, text = KEYS.get(key) or (ord(key.upper()), key)
        event = {"key": key, "windowsVirtualKeyCode": code, "modifiers": 8 if shift else 0}
        self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", **event, **({"text": text} if text else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **event)

    def box(self, selector):
        found = self.run(f"""(() => {{ const e = document.querySelector({json.dumps(selector)}); if (!e) return null;
            e.scrollIntoView({{block: 'nearest'}}); const b = e.getClientRects()[0]; return b && [b.x, b.y, b.width, b.height]; }})()""")
        if not found:
            raise AssertionError(f"nothing to see of {selector}")
        return found

    def hover(self, selector):
        x, y, width, height = self.box(selector)
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x + width / 2, y=y + height / 2)

    def click(self, selector):
        x, y, width, height = self.box(selector)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x + width / 2, y=y + height / 2, button="left", clickCount=1)

    def screenshot(self, path):
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    # ---- What happened on it.

    def _all(self, method):
        self.run("0")  # takes what is on its way
        return [event["params"] for event in self.events if event["method"] == method]

    def requests(self):
        """The URLs that the page asked for."""
        return [event["request"]["url"] for event in self._all("Network.requestWillBeSent")]

    def complaints(self):
        """Errors and warnings of the console, exceptions, and what the browser logs as an error."""
        said = [" ".join(str(part.get("value", part.get("description"))) for part in event["args"])
                for event in self._all("Runtime.consoleAPICalled") if event["type"] in ("error", "warning", "assert")]
        said += [event["exceptionDetails"].get("exception", {}).get("description", "exception") for event in self._all("Runtime.exceptionThrown")]
        said += [event["entry"]["text"] for event in self._all("Log.entryAdded") if event["entry"]["level"] == "error"]
        return said
