"""The studio: one page on this machine, and what it asks for.

It listens on the loopback address alone, and answers only requests that name it so (against names of elsewhere that
resolve to this machine) and that come from its own page (against other pages in the same browser). Bodies have limits.
Nothing that a request says is evaluated or used as a path. Compiling happens in other processes: see jobs.py.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from shutil import rmtree
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from headsmith.core.errors import HeadsmithError
from headsmith.studio.jobs import Job, Jobs, Limits
from headsmith.studio.page import SCRIPTS, asset
from headsmith.studio.remains import own_folder, until_interrupted
from headsmith.studio.worker import EXPORTS, MODEL, NETWORKS, PAGE, VIEW

LARGEST_REQUEST, LARGEST_FILE = 256 << 10, 32 << 20
"""Bytes of a request, and of a file that is dropped."""

MOST_MODELS, MOST_FILES = 64, 16
"""How many models and dropped files are kept; the oldest go."""


ASSETS = {
    "style.css": "text/css",
    **dict.fromkeys((*SCRIPTS, "plan.js", "studio.js"), "text/javascript"),
}
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class OwnPageOnly:
    """Refuses requests under another name than this machine's own, and from other pages; adds headers to answers."""

    def __init__(self, app: ASGIApp, port: int) -> None:
        self._app = app
        self._hosts = {f"{name}:{port}" for name in ("127.0.0.1", "localhost", "[::1]")}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)

        async def answer(message: Any) -> None:
            if message["type"] == "http.response.start":
                named = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message.get("headers", []), *named]
            await send(message)

        problem = self._problem(Request(scope))
        if problem is None:
            await self._app(scope, receive, answer)
        else:
            await failed(problem, 403)(scope, receive, answer)

    def _problem(self, request: Request) -> str | None:
        if request.headers.get("host") not in self._hosts:
            return "the studio answers to 127.0.0.1 and localhost alone"
        origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site", "none")
        if origin is not None and origin not in {f"http://{host}" for host in self._hosts}:
            return "the studio answers to its own page alone"
        # A link from elsewhere may open the page itself, and nothing else.
        visit = request.method == "GET" and request.url.path == "/"
        return None if site in ("none", "same-origin") or visit else "the studio answers to its own page alone"


def failed(message: str, status: int = 400) -> JSONResponse:
    """An answer that says what is wrong."""
    return JSONResponse({"error": {"kind": "refused", "message": message}}, status)


class Studio:
    """What the page asks for. Models and dropped files live in a temporary folder as long as the studio does."""

    def __init__(self, folder: Path, limits: Limits) -> None:
        self.jobs = Jobs(limits)
        self._models, self._uploads = folder / "models", folder / "uploads"
        self._models.mkdir()
        self._uploads.mkdir()

    def app(self, port: int) -> ASGIApp:
        """The application."""

        @contextlib.asynccontextmanager
        async def lifespan(_: Starlette) -> AsyncIterator[None]:
            async with self.jobs.working():
                yield

        routes = [
            Route("/", self.page),
            Route("/assets/{name}", self.asset),
            Route("/api/choices", self.choices),
            Route("/api/jobs", self.submit, methods=["POST"]),
            Route("/api/jobs/{name}", self.job, methods=["GET", "DELETE"]),
            Route("/api/files/{name}", self.upload, methods=["PUT"]),
            Route("/api/models/{name}/{what}", self.model),
        ]
        return OwnPageOnly(Starlette(routes=routes, lifespan=lifespan), port)

    async def page(self, _: Request) -> Response:
        return Response(asset("studio.html"), media_type="text/html")

    async def asset(self, request: Request) -> Response:
        name = request.path_params["name"]
        return Response(asset(name), media_type=ASSETS[name]) if name in ASSETS else failed("no such file", 404)

    async def choices(self, _: Request) -> Response:
        """What the page lets people choose from."""
        from headsmith.core.rounding import PRECISIONS
        from headsmith.plan.reading import RECIPES
        from headsmith.studio.gallery import listed

        return JSONResponse({"recipes": list(RECIPES), "formats": list(PRECISIONS), "examples": listed()})

    async def submit(self, request: Request) -> Response:
        """Start a job. A model that is there already is done at once."""
        body = await limited(request, LARGEST_REQUEST)
        if body is None:
            return failed(f"a request has at most {LARGEST_REQUEST} bytes", 413)
        try:
            asked = json.loads(body)
        except (ValueError, RecursionError):
            return failed("the request is no JSON")
        if not isinstance(asked, dict):
            return failed("the request is no JSON object")
        kind = asked.get("do")
        try:
            if kind in ("compile", "example", "open"):
                return JSONResponse(self._make(asked).shown())
            if kind == "plan":
                return JSONResponse(self.jobs.submit(self._request(asked, "do", "asked")).shown())
            if kind in ("run", "page", "export") and self._folder(asked.get("model")) is not None:
                return JSONResponse(self.jobs.submit(self._request(asked, "do", "model", "rows", "to")).shown())
        except HeadsmithError as problem:
            return failed(str(problem), 503)
        return failed("there is no such request, or no such model any more", 404)

    def _request(self, asked: dict[str, Any], *names: str) -> dict[str, Any]:
        """What a process is told: what was asked, and where files are."""
        return {name: asked[name] for name in names if name in asked} | {
            "models": str(self._models),
            "uploads": str(self._uploads),
        }

    def _make(self, asked: dict[str, Any]) -> Job:
        """A job that makes a model. The same request is the same model, and is made once."""
        wanted = self._request(asked, "do", "asked", "name", "values", "file")
        name = hashlib.sha256(json.dumps(wanted, sort_keys=True).encode()).hexdigest()[:24]
        if self._folder(name) is not None:
            job = Job({})
            job.end("done", result={"model": name}, text="done", share=1.0)
            return job
        job = self.jobs.submit({**wanted, "folder": str(self._models / name)})
        job.result = {"model": name}
        made = sorted(self._models.glob(f"*/{VIEW}"), key=lambda path: path.stat().st_mtime)
        for path in made[: -MOST_MODELS or None]:
            rmtree(path.parent, ignore_errors=True)
        return job

    def _folder(self, name: Any) -> Path | None:
        """Where a model is kept, if it is."""
        if not isinstance(name, str) or not re.fullmatch(r"[0-9a-f]{24}", name):
            return None
        folder = self._models / name
        return folder if (folder / VIEW).is_file() else None

    async def job(self, request: Request) -> Response:
        job = self.jobs.find(request.path_params["name"])
        if job is None:
            return failed("there is no such job any more", 404)
        if request.method == "DELETE":
            self.jobs.cancel(job)
        return JSONResponse(job.shown())

    async def upload(self, request: Request) -> Response:
        """Keep a file that was dropped, under its own name and that of its content."""
        name = os.path.basename(request.path_params["name"])
        if not re.fullmatch(r"[\w. -]{1,80}", name) or not name.lower().endswith(NETWORKS):
            return failed(f"drop a file that ends in {' or '.join(NETWORKS)}, with a plain name")
        body = await limited(request, LARGEST_FILE)
        if body is None:
            return failed(f"a file has at most {LARGEST_FILE >> 20} MiB here", 413)
        kept = f"{hashlib.sha256(body).hexdigest()[:12]}-{name[-48:]}"
        (self._uploads / kept).write_bytes(body)
        old = sorted(self._uploads.iterdir(), key=lambda path: path.stat().st_mtime)
        for path in old[:-MOST_FILES]:
            path.unlink()
        return JSONResponse({"file": kept, "name": name, "kind": kind_of_file(name, body)})

    async def model(self, request: Request) -> Response:
        """A file of a model: its view as JSON, the model itself, its page, or an export."""
        folder, what = self._folder(request.path_params["name"]), request.path_params["what"]
        kinds = {VIEW: "application/json", MODEL: "application/octet-stream", PAGE: "text/html"}
        kinds |= {f"{to}.zip": "application/zip" for to in EXPORTS}
        if folder is None or what not in kinds or not (folder / what).is_file():
            return failed("there is no such model any more: compile it again", 404)
        return FileResponse(folder / what, media_type=kinds[what], filename=None if what == VIEW else what)


def kind_of_file(name: str, body: bytes) -> str:
    """Whether a dropped file is a model of ours, or the weights of a network. A .safetensors file may be either, and
    its header says which; the first eight bytes are its length. Only what the page asks for next depends on this."""
    header = body[8 : 8 + int.from_bytes(body[:8], "little")]
    return "model" if name.lower().endswith(".safetensors") and b'"headsmith"' in header else "network"


async def limited(request: Request, most: int) -> bytes | None:
    """The body of a request, or None if it has more bytes than it may."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > most:
            return None
    return bytes(body)


def serve(port: int, limits: Limits, ready: Any) -> None:
    """Run the studio until it is interrupted, by Ctrl-C or SIGTERM. `ready` is called with its address."""
    with until_interrupted(), own_folder() as folder, socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", port))
        chosen = listening.getsockname()[1]
        app = Studio(folder, limits).app(chosen)
        config = uvicorn.Config(app, log_level="error", access_log=False, server_header=False, ws="none")
        server = uvicorn.Server(config)
        listening.listen(128)
        ready(f"http://127.0.0.1:{chosen}/")
        # The server ends what it has begun, and then raises what interrupted it.
        server.run(sockets=[listening])
