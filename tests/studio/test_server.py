"""The studio's server: safe by default, within limits, alive whatever it is asked for."""

import io
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.effort import tried
from helpers.pages.studio import Studio, memory, running

import headsmith as hs
from headsmith.studio.gallery import GALLERY

HEAVY = {"formula": "exp(x*y*z) + sin(x*y)*sqrt(2 + z*x)", "domain": "-1:1", "error": 1e-9, "recipe": "relu"}
"""Takes minutes."""


@pytest.fixture(scope="module")
def studio() -> Iterator[Studio]:
    with running() as found:
        yield found


def test_a_formula_becomes_a_model_with_its_files(studio: Studio, tmp_path: Path) -> None:
    done = studio.compile("x*y", error="1e-6")
    assert done["state"] == "done", done
    folder = f"/api/models/{done['result']['model']}"
    view = json.loads(studio.request("GET", f"{folder}/view.json")[1])
    assert view["title"] == "x*y"
    assert view["python"].startswith("import headsmith as hs\n\nmodel = hs.compile('x*y', {'x': (-1.0, 1.0)")
    (tmp_path / "model.safetensors").write_bytes(studio.request("GET", f"{folder}/model.safetensors")[1])
    assert hs.verify(tmp_path / "model.safetensors").error <= 1e-6
    run = studio.wait(studio.start(do="run", model=done["result"]["model"], rows=[[0.5, -0.5]]))
    assert run["result"]["outputs"][0][0] == pytest.approx(-0.25, abs=1e-6)
    studio.wait(studio.start(do="page", model=done["result"]["model"]))
    assert studio.request("GET", f"{folder}/page.html")[1].startswith(b"<!DOCTYPE html>")


@pytest.mark.parametrize("to", ["circuit", "huggingface"])
def test_models_are_exported_as_archives(to: str, studio: Studio, tmp_path: Path) -> None:
    model = studio.compile("x*y", error="1e-6")["result"]["model"]
    done = studio.wait(studio.start(do="export", model=model, to=to))
    assert done["state"] == "done", done
    (tmp_path / "made.zip").write_bytes(studio.request("GET", f"/api/models/{model}/{to}.zip")[1])
    shutil.unpack_archive(tmp_path / "made.zip", tmp_path)
    assert hs.verify(tmp_path / to).error <= 1e-6
    failed = studio.wait(studio.start(do="export", model=model, to="../nothing"))
    assert failed["error"]["kind"] == "TargetError"


def test_the_same_request_is_the_same_model_and_made_once(studio: Studio) -> None:
    first = studio.compile("max(x, y)")
    again = studio.start(do="compile", asked={"formula": "max(x, y)", "domain": "-1:1"})
    assert again["state"] == "done"
    assert again["result"] == first["result"]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", GALLERY)
def test_the_examples_compile_from_their_own_lines(name: str, studio: Studio) -> None:
    values = {"tokens": 4, "examples": 4, "steps": 1, "doublings": 1, "error": 1e-2}
    done = studio.wait(studio.start(do="example", name=name, values=values))
    assert done["state"] == "done", done
    view = json.loads(studio.request("GET", f"/api/models/{done['result']['model']}/view.json")[1])
    made: dict[str, Any] = {}
    exec(view["python"].partition("model.save")[0], made)
    assert made["model"].certificate.error == view["certificate"]["error"]


def test_examples_refuse_other_names_and_numbers(studio: Studio) -> None:
    for request in ({"name": "nothing"}, {"name": ["sort"]}, {"name": "sort", "values": {"tokens": 10**9}}):
        failed = studio.wait(studio.start(do="example", **request))
        assert failed["error"]["kind"] == "TargetError"


def test_recipes_are_compared(studio: Studio) -> None:
    asked = {"formula": "1/x", "domain": "0.5:1", "error": 0.01}
    done = studio.wait(studio.start(do="plan", asked=asked))
    assert {"native", "relu"} <= {row["recipe"] for row in done["result"]["rows"]}
    assert any(row["pareto"] for row in done["result"]["rows"])
    assert r"\toprule" in done["result"]["latex"]


def test_it_listens_on_the_loopback_address_alone(studio: Studio) -> None:
    with socket.socket() as other, pytest.raises(OSError):
        other.connect(("127.0.0.2", studio.port))
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    listening = [row[1] for row in rows if row[3] == "0A" and int(row[1].partition(":")[2], 16) == studio.port]
    assert listening == [f"0100007F:{studio.port:04X}"]


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "evil.example:8765"},
        {"Host": "127.0.0.1"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_other_names_and_other_pages_are_refused(headers: dict[str, str], studio: Studio) -> None:
    for method, path in (("POST", "/api/jobs"), ("GET", "/api/choices"), ("PUT", "/api/files/a.npz")):
        assert studio.request(method, path, b"{}", headers)[0] == 403


def test_a_link_from_elsewhere_opens_the_page(studio: Studio) -> None:
    assert studio.request("GET", "/", None, {"Sec-Fetch-Site": "cross-site"})[0] == 200


def test_answers_forbid_what_a_page_does_not_need(studio: Studio) -> None:
    import http.client

    connection = http.client.HTTPConnection("127.0.0.1", studio.port)
    connection.request("GET", "/")
    answer = connection.getresponse()
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["X-Frame-Options"] == "DENY"
    assert b"http" not in answer.read()


@pytest.mark.parametrize(
    "path",
    [
        "/assets/../server.py",
        "/assets/%2e%2e%2fserver.py",
        "/assets/page.html",
        "/api/models/../../etc/view.json",
        "/api/models/%2e%2e/view.json",
        f"/api/models/{'0' * 24}/view.json",
        "/api/jobs/nothing",
        "/nothing",
    ],
)
def test_there_is_no_way_to_other_files(path: str, studio: Studio) -> None:
    status, body = studio.request("GET", path)
    assert status == 404
    assert b"import" not in body


WELL = ["x*y", "max(x, y)", "relu(x) - y", "abs(x - y)", "x + 2*y", "min(x, y, 0)", "x**2", "clip(x, -0.5, 0.5)"]
ILL = [
    "",
    " ",
    "(",
    "x +",
    "x ** y ** z",
    "1/0",
    "1/x",
    "log(x)",
    "x; y",
    "x = 1",
    "foo(x)",
    "x y",
    "1e999*x",
    "x**1e9",
    "exp(exp(exp(exp(9*x))))",
    "(" * 5000,
    "-" * 3999 + "x",
    "+".join(["sin(x)"] * 400),
    "__import__('os').system('touch /tmp/headsmith-broken')",
    "open('/etc/passwd').read()",
    "().__class__.__bases__[0].__subclasses__()",
    "lambda: x",
    "x if y else z",
    "[x for x in y]",
    "f'{x}'",
    "eval('x')",
    "/etc/passwd",
    "../../secret.npz",
    "net.npz",
    "<script>alert(1)</script>",
    "x\x00y",
    "\u202ex*y",
    "😀*x",
    "x" * 4000,
    "x" * 5000,
    ",".join("xyz" * 200),
    ", ".join(f"x{i}" for i in range(600)),
    "nan*x",
    "inf",
    "1_000*x",
    "0x10*x",
    "x.real",
    "x[0]",
    "x@y",
    "x//y",
    "x % y",
    "x & y",
    "~x",
    "not x",
    "3",
    "max()",
    "norm()",
]
"""Malformed or hostile; none of them may do more than be refused."""


@pytest.mark.again
def test_200_formulas_50_at_once_half_of_them_hostile(studio: Studio) -> None:
    """100 in `make test`."""
    formulas = [text for i in range(tried(100, 2)) for text in (WELL[i % len(WELL)], ILL[i % len(ILL)])]

    def ask(place: int) -> dict[str, Any]:
        asked = {"formula": formulas[place], "domain": "-1:1", "error": (place % 2 + 1) * 1e-2}
        status, body = studio.request("POST", "/api/jobs", {"do": "compile", "asked": asked})
        found = json.loads(body)
        return found if status != 200 else studio.wait(found, 300)

    before = memory(studio.process.pid)
    with ThreadPoolExecutor(50) as pool:
        found = list(pool.map(ask, range(len(formulas))))
    for formula, outcome in zip(formulas, found, strict=True):
        text = json.dumps(outcome)
        assert outcome["state"] in ("done", "failed"), outcome
        assert "Traceback" not in text
        assert "/tmp" not in text.replace("/tmp/headsmith-broken", "")
        assert formula not in WELL or outcome["state"] == "done", outcome.get("error")
        if outcome["state"] == "failed":
            assert outcome["error"]["kind"] in ("TargetError", "DomainError", "UnreachableError"), (formula, outcome)
    assert not os.path.exists("/tmp/headsmith-broken")
    assert memory(studio.process.pid) < before + (200 << 20)
    assert sum(memory(worker) for worker in studio.workers()) < 2 << 30


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"3", b"null", b'"x"', b"\xff", b"[" * 100_000, b'{"do": "compile"}', b'{"do": "rm"}']
    + [json.dumps({"do": "compile", "asked": asked}).encode() for asked in ({"formula": 3}, {"error": "much"}, [1])]
    + [json.dumps({"do": "run", "model": "../..", "rows": [[1]]}).encode()],
)
def test_requests_that_are_none_are_refused_in_words(body: bytes, studio: Studio) -> None:
    status, answer = studio.request("POST", "/api/jobs", body)
    found = json.loads(answer)
    if status == 200:
        found = studio.wait(found)
        assert found["state"] == "failed"
    assert found["error"]["message"]
    assert found["error"]["kind"] != "internal"


def test_large_requests_and_files_are_refused(studio: Studio) -> None:
    assert studio.request("POST", "/api/jobs", b" " * 300_000)[0] == 413
    assert studio.request("PUT", "/api/files/net.npz", b"0" * (33 << 20))[0] == 413
    assert studio.request("PUT", "/api/files/net.exe", b"0")[0] == 400
    assert studio.request("PUT", "/api/files/%2e%2e%2fnet.npz", b"0")[0] in (400, 404)


def npz(**arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


def dropped(studio: Studio, name: str, content: bytes) -> str:
    status, body = studio.request("PUT", f"/api/files/{name}", content)
    assert status == 200, body
    return str(json.loads(body)["file"])


def test_a_network_is_dropped_and_compiled(studio: Studio) -> None:
    content = npz(W0=[[1, -1], [-1, 1]], b0=[0, 0], W1=[[1, 1]], b1=[0], names=["x", "y"])
    asked = {"file": dropped(studio, "net.npz", content), "domain": "-1:1", "error": 1e-6}
    done = studio.wait(studio.start(do="compile", asked=asked))
    assert done["state"] == "done", done


def test_an_onnx_file_is_dropped_and_compiled(studio: Studio) -> None:
    helper, tensors = pytest.importorskip("onnx").helper, pytest.importorskip("onnx").numpy_helper
    weights = tensors.from_array(np.array([[1.0, -1.0], [-1.0, 1.0]]), "W")
    nodes = [helper.make_node("MatMul", ["x", "W"], ["z"]), helper.make_node("Relu", ["z"], ["y"])]
    ends = [helper.make_tensor_value_info(name, 11, [1, 2]) for name in "xy"]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], [weights])
    content = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString()
    asked = {"file": dropped(studio, "net.onnx", content), "domain": "-1:1", "error": 1e-6}
    done = studio.wait(studio.start(do="compile", asked=asked))
    assert done["state"] == "done", done
    view = json.loads(studio.request("GET", f"/api/models/{done['result']['model']}/view.json")[1])
    assert view["title"] == "the network in net.onnx"
    broken = {**asked, "file": dropped(studio, "broken.onnx", b"no such format")}
    failed = studio.wait(studio.start(do="compile", asked=broken))
    assert failed["error"]["kind"] == "TargetError"
    assert "/" not in failed["error"]["message"]


def test_a_model_is_dropped_and_proven_again(studio: Studio, gallery: Any, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    gallery["product"].save(path)
    done = studio.wait(studio.start(do="open", file=dropped(studio, path.name, path.read_bytes())))
    view = json.loads(studio.request("GET", f"/api/models/{done['result']['model']}/view.json")[1])
    assert view["verified"] is True
    content = bytearray(path.read_bytes())
    content[-40:-32] = np.float64(3.0).tobytes()
    failed = studio.wait(studio.start(do="open", file=dropped(studio, "forged.safetensors", bytes(content))))
    assert failed["state"] == "failed"
    assert failed["error"]["kind"] in ("CertificateError", "FileFormatError", "ThinMarginError")
    assert "/" not in failed["error"]["message"]


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 no zip", b"\x00" * 1000])
@pytest.mark.parametrize("ending", ["npz", "safetensors"])
def test_files_that_are_none_are_refused_without_a_path(content: bytes, ending: str, studio: Studio) -> None:
    file = dropped(studio, f"broken.{ending}", content)
    request = {"do": "open", "file": file} if ending == "safetensors" else {"do": "compile"}
    failed = studio.wait(studio.start(**request, asked={"file": file, "domain": "-1:1"}))
    assert failed["error"]["kind"] in ("TargetError", "FileFormatError")
    assert "/" not in failed["error"]["message"]


def test_a_file_that_unpacks_to_more_than_there_is_memory_is_refused(studio: Studio) -> None:
    file, header = io.BytesIO(), io.BytesIO()
    shape = {"descr": "<f8", "fortran_order": False, "shape": (200_000, 100_000)}
    np.lib.format.write_array_header_1_0(header, shape)
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("W0.npy", header.getvalue() + bytes(10_000_000))
    asked = {"file": dropped(studio, "bomb.npz", file.getvalue()), "domain": "-1:1"}
    failed = studio.wait(studio.start(do="compile", asked=asked))
    assert failed["error"]["kind"] in ("MemoryError", "TargetError")
    assert studio.compile("x*y", error=1e-2)["state"] == "done"


def test_a_job_is_cancelled(studio: Studio) -> None:
    job = studio.start(do="compile", asked=HEAVY)
    studio.under_way(job)
    status, body = studio.request("DELETE", f"/api/jobs/{job['job']}")
    assert (status, json.loads(body)["state"]) == (200, "cancelled")
    assert studio.compile("x - y")["state"] == "done"


def test_killing_the_process_in_mid_compile_fails_that_job_alone(studio: Studio) -> None:
    job = studio.start(do="compile", asked={**HEAVY, "error": 2e-9})
    studio.under_way(job)
    for worker in studio.workers():
        os.kill(worker, signal.SIGKILL)
    failed = studio.wait(job)
    assert failed["error"]["message"].startswith("the compiling process ended")
    assert studio.compile("x*y - 1", error=1e-2)["state"] == "done"


def test_killing_an_idle_process_is_not_noticed(studio: Studio) -> None:
    assert studio.compile("y - x")["state"] == "done"
    for worker in studio.workers():
        os.kill(worker, signal.SIGKILL)
    assert studio.compile("y - 2*x")["state"] == "done"


def test_a_job_has_a_limit_of_time() -> None:
    with running("--seconds", "2") as hasty:
        failed = hasty.wait(hasty.start(do="compile", asked=HEAVY))
        assert failed["error"] == {
            "kind": "TimeoutError",
            "message": "this takes longer than 2 s, the studio's limit: ask for a larger error",
        }


def test_without_the_extra_the_command_names_it() -> None:
    code = "import sys; sys.modules['starlette'] = None; from headsmith.cli import main; main(['studio'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == 'headsmith: the studio needs starlette and uvicorn: pip install "headsmith[web]"\n'
