"""A real browser, driven through the WebDriver protocol of Chromium's own driver: plain JSON over HTTP, no library."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"


class Browser:
    """One window. `console` has what pages complained about."""

    def __init__(self, address: str, session: str) -> None:
        self._base = f"{address}/session/{session}"

    def _call(self, method: str, path: str, **body: Any) -> Any:
        return call(method, f"{self._base}{path}", body if method == "POST" else None)

    def open(self, address: str) -> None:
        self._call("POST", "/url", url=address)

    def run(self, script: str, *arguments: Any) -> Any:
        """What a script returns; promises are waited for."""
        return self._call("POST", "/execute/sync", script=script, args=list(arguments))

    def find(self, selector: str) -> str:
        return str(self._call("POST", "/element", using="css selector", value=selector)[ELEMENT])

    def click(self, selector: str) -> None:
        self._call("POST", f"/element/{self.find(selector)}/click")

    def type(self, selector: str, text: str, *, clear: bool = True) -> None:
        element = self.find(selector)
        if clear:
            self._call("POST", f"/element/{element}/clear")
        self._call("POST", f"/element/{element}/value", text=text)

    def text(self, selector: str) -> str:
        return str(self._call("GET", f"/element/{self.find(selector)}/text"))

    def drag(self, selector: str, start: tuple[float, float], end: tuple[float, float], steps: int = 8) -> None:
        """Press at one place of an element, move, release; places are shares of its width and height."""
        left, top, width, height = self.run(
            "const e = document.querySelector(arguments[0]); e.scrollIntoView({block: 'center'});"
            "const b = e.getBoundingClientRect(); return [b.left, b.top, b.width, b.height]",
            selector,
        )
        path = [
            (start[0] + (end[0] - start[0]) * step / steps, start[1] + (end[1] - start[1]) * step / steps)
            for step in range(steps + 1)
        ]
        moves: list[dict[str, Any]] = [
            {"type": "pointerMove", "duration": 10, "x": round(left + x * width), "y": round(top + y * height)}
            for x, y in path
        ]
        moves.insert(1, {"type": "pointerDown", "button": 0})
        moves.append({"type": "pointerUp", "button": 0})
        self._call("POST", "/actions", actions=[{"type": "pointer", "id": "mouse", "actions": moves}])

    def press(self, *keys: str) -> None:
        """Keys for whatever has the focus."""
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self._call("POST", "/actions", actions=[{"type": "key", "id": "keys", "actions": actions}])

    def wait(self, script: str, *arguments: Any, seconds: float = 30.0) -> Any:
        """Wait until a script returns something; what it returned."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = self.run(script, *arguments)
            if found:
                return found
            time.sleep(0.05)
        raise TimeoutError(f"after {seconds} s there is still nothing: {script}\nconsole: {self.console()}")

    def resize(self, width: int, height: int) -> None:
        self._call("POST", "/window/rect", width=width, height=height)

    def new_tab(self) -> str:
        handle = str(self._call("POST", "/window/new", type="tab")["handle"])
        self.switch(handle)
        return handle

    def tab(self) -> str:
        return str(self._call("GET", "/window"))

    def switch(self, handle: str) -> None:
        self._call("POST", "/window", handle=handle)

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self._call("GET", "/screenshot")))

    def emulate(self, command: str, **options: Any) -> Any:
        """A command of the browser's own protocol, such as Emulation.setEmulatedMedia."""
        return self._call("POST", "/goog/cdp/execute", cmd=command, params=options)

    def console(self) -> list[str]:
        """What pages complained about since the last call."""
        return [entry["message"] for entry in self._call("POST", "/se/log", type="browser")]


def call(method: str, address: str, body: Any = None) -> Any:
    """One request to the driver; its own words where it refuses."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address, data, {"Content-Type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.load(answer)["value"]
    except urllib.error.HTTPError as problem:
        raise RuntimeError(json.load(problem)["value"]["message"]) from None


@contextmanager
def started() -> Iterator[Browser]:
    """A browser of its own, closed in the end."""
    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if program is None or driver is None:
        raise RuntimeError("the tests of pages need Chromium and its driver: run `make browser`")
    process = subprocess.Popen([driver, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        line = next(line for line in process.stdout if "started successfully on port" in line)
        address = f"http://127.0.0.1:{line.rstrip().rstrip('.').rpartition(' ')[2]}"
        options = {
            "binary": program,
            "args": ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
        }
        wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        session = call("POST", f"{address}/session", {"capabilities": {"alwaysMatch": wanted}})["sessionId"]
        try:
            yield Browser(address, session)
        finally:
            call("DELETE", f"{address}/session/{session}")
    finally:
        process.terminate()
        process.wait(10)
