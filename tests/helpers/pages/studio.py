"""A studio of its own for tests, and plain requests to it."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Studio:
    """A running studio, asked without a browser."""

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self.process, self.port = process, port
        self.address = f"http://127.0.0.1:{port}/"

    def request(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, bytes]:
        """The status and the body of one answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        try:
            connection.request(method, path, data, headers or {})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def start(self, **request: Any) -> dict[str, Any]:
        status, body = self.request("POST", "/api/jobs", request)
        assert status == 200, body
        return dict(json.loads(body))

    def state(self, job: dict[str, Any]) -> dict[str, Any]:
        return dict(json.loads(self.request("GET", f"/api/jobs/{job['job']}")[1]))

    def wait(self, job: dict[str, Any], seconds: float = 60.0) -> dict[str, Any]:
        """The job when it has ended."""
        end, pause = time.monotonic() + seconds, 0.02
        while job["state"] in ("waiting", "running"):
            assert time.monotonic() < end, job
            time.sleep(pause)
            job, pause = self.state(job), min(2.0 * pause, 0.5)
        return job

    def under_way(self, job: dict[str, Any], seconds: float = 60.0) -> None:
        """Wait until a job's process has told what it does."""
        end = time.monotonic() + seconds
        while job["text"] in ("waiting for a free process", "starting"):
            assert job["state"] in ("waiting", "running"), job
            assert time.monotonic() < end, job
            time.sleep(0.05)
            job = self.state(job)

    def compile(self, formula: str, domain: str = "-1:1", **options: Any) -> dict[str, Any]:
        return self.wait(self.start(do="compile", asked={"formula": formula, "domain": domain, **options}))

    def workers(self) -> list[int]:
        """The numbers of the processes that compile."""
        with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children") as file:
            return [int(number) for number in file.read().split()]


@contextmanager
def running(*options: str, stays: bool = True) -> Iterator[Studio]:
    """A studio on a free port, ended in the end; unless it `stays`, it may have been ended before."""
    command = [sys.executable, "-m", "headsmith", "studio", "--port", "0", "--no-browser", "--json", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        port = int(json.loads(line)["address"].rstrip("/").rpartition(":")[2])
        studio = Studio(process, port)
        while True:
            try:
                studio.request("GET", "/")
                break
            except OSError:
                time.sleep(0.05)
        yield studio
        assert not stays or process.poll() is None, "the studio ended by itself"
    finally:
        process.send_signal(signal.SIGINT)
        _, complaints = process.communicate(timeout=20)
        assert complaints == "", complaints


def memory(process: int) -> int:
    """Bytes that a process holds; 0 if it is gone."""
    try:
        with open(f"/proc/{process}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
