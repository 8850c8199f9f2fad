"""ONNX files become targets. Every reading compares itself with ONNX Runtime, and raises where they differ by more than
rounding: so reading is the test. Files that were written to deceive are refused with the reason."""

from __future__ import annotations

import contextlib
import io
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headsmith as hs

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from onnx import TensorProto, helper, numpy_helper, parser  # noqa: E402

HEADER = '<ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 3]>\n'


def written(tmp_path: Path, text: str, **weights: Any) -> Path:
    """A file with this graph and these weights."""
    model = parser.parse_model(HEADER + text)
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(each), name) for name, each in weights.items())
    return saved(tmp_path, model)


def saved(tmp_path: Path, model: Any) -> Path:
    path = tmp_path / "net.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def read(tmp_path: Path, text: str, **weights: Any) -> hs.Imported:
    found = hs.from_onnx(written(tmp_path, text, **weights))
    assert found.difference is not None, found.notes
    assert found.difference.largest < 1e-4
    return found


def test_functions_of_one_number(tmp_path: Path) -> None:
    names = "Relu Abs Neg Exp Sin Tanh Sigmoid Erf Softplus Softsign HardSwish LeakyRelu Elu Selu Celu HardSigmoid Atan"
    lines = [f"y{place} = {name}(x)" for place, name in enumerate(names.split())]
    every = ", ".join(f"y{place}" for place in range(len(lines)))
    body = "\n".join([*lines, f"y = Concat<axis=1>({every})"])
    assert read(tmp_path, f"net (float[N, 3] x) => (float[N, 51] y) {{ {body} }}").output_shape == (51,)


def test_layers(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    weights = {
        name: random.normal(size=shape).astype(np.float32)
        for name, shape in (
            ("W", (4, 1, 3, 3)),
            ("b", (4,)),
            ("T", (4, 2, 2, 2)),
            ("G", (8, 5)),
            ("g", (5,)),
            ("m", (4,)),
        )
    }
    found = read(
        tmp_path,
        """net (float[N, 1, 6, 6] x) => (float[N, 5] y) {
            c = Conv<auto_pad="SAME_UPPER", strides=[2, 2]>(x, W, b)
            n = BatchNormalization(c, m, b, b, v)
            r = Relu(n)
            p = MaxPool<kernel_shape=[2, 2], ceil_mode=1, strides=[2, 2]>(r)
            t = ConvTranspose<strides=[2, 2]>(p, T)
            a = AveragePool<kernel_shape=[2, 2], pads=[1, 1, 1, 1], strides=[2, 2]>(t)
            d = Dropout(a)
            s = Slice(d, one, three, two)
            l = Flatten(s)
            h = Gemm(l, H, g)
            y = Softmax(h)
        }""",
        v=np.full(4, 0.5, np.float32),
        H=random.normal(size=(12, 5)).astype(np.float32),
        one=np.array([1]),
        three=np.array([3]),
        two=np.array([2]),
        **weights,
    )
    assert found.notes == ("Dropout: changes nothing in inference mode, and is left out",)
    assert found.input_shape == (1, 6, 6)


def test_shapes_are_computed_and_numbers_only_move(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        """net (float[N, 6] x) => (float[M] y) {
            s = Shape(x)
            n = Gather(s, zero)
            u = Concat<axis=0>(n, minus)
            r = Reshape(x, u)
            t = Transpose<perm=[0, 2, 1]>(r)
            e = Expand(t, times)
            a, b = Split<axis=2>(e)
            p = Pad<mode="reflect">(a, pads)
            y = Reshape(p, all)
        }""",
        zero=np.array([0]),
        minus=np.array([2, 3]),
        times=np.array([2, 1, 1]),
        all=np.array([-1]),
        pads=np.array([0, 1, 0, 0, 1, 0]),
    )
    assert len(found.graph.nodes) == 2


def test_over_axes_and_pairs(tmp_path: Path) -> None:
    constants = {"low": -0.5, "high": 0.25, "two": 2.0, "one": 1.0}
    read(
        tmp_path,
        """net (float[N, 4] x) => (float[N, 33] y) {
            a = ReduceMax<axes=[1]>(x)
            b = ReduceMean<axes=[1]>(x)
            c = ReduceL2<axes=[1]>(x)
            d = Max(x, a)
            e = Min(x, b)
            f = Clip(x, low, high)
            c1 = Add(c, one)
            g = Div(d, c1)
            h = Mul(e, g)
            i = Pow(x, two)
            j = LogSoftmax<axis=1>(x)
            k = LayerNormalization(x, scale)
            l = MatMul(x, W)
            y = Concat<axis=1>(b, d, e, f, h, i, j, k, l)
        }""",
        **{name: np.float32(number) for name, number in constants.items()},
        scale=np.ones(4, np.float32),
        W=np.eye(4, dtype=np.float32),
    )


def test_softplus_as_torch_writes_it(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        "net (float[N, 4] x) => (float[N, 4] y) { s = Softplus(x)\n c = Greater(x, t)\n y = Where(c, x, s) }",
        t=np.float32(20),
    )
    assert "differs by less than 1e-8" in found.notes[0]


def test_a_trained_network_that_torch_wrote(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from helpers.models.trained import FIRST_UNSEEN, Convolutional, check_predictions, digits, train

    torch.manual_seed(0)
    module = train(Convolutional(4, 4), steps=40)
    images, labels = digits()
    path = tmp_path / "net.onnx"
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        torch.onnx.export(module, (torch.zeros(1, 64),), str(path))
    assert (tmp_path / "net.onnx.data").exists()
    network = hs.from_onnx(path)
    model = hs.compile(network, (0, 1), 1e-3)
    with torch.no_grad():
        theirs = module(torch.as_tensor(images[FIRST_UNSEEN:])).double().numpy()
    assert network.difference is not None
    check_predictions(model, network.difference.largest, theirs, images[FIRST_UNSEEN:], labels[FIRST_UNSEEN:])


def test_pipelines_that_skl2onnx_wrote(tmp_path: Path) -> None:
    convert = pytest.importorskip("skl2onnx").to_onnx
    from sklearn import datasets, decomposition, linear_model, neural_network, pipeline, preprocessing, svm

    points, labels = datasets.load_iris(return_X_y=True)
    chain, scaler = pipeline.make_pipeline, preprocessing.StandardScaler
    for estimator in (
        chain(scaler(), linear_model.LogisticRegression()),
        chain(scaler(), decomposition.PCA(2), neural_network.MLPClassifier((4,), max_iter=20, random_state=0)),
        chain(preprocessing.MinMaxScaler(), linear_model.Ridge()),
        svm.LinearSVC(),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            estimator.fit(points, labels)
        found = hs.from_onnx(saved(tmp_path, convert(estimator, points[:1].astype(np.float32))))
        assert found.difference is not None
        if hasattr(estimator, "predict_proba"):
            assert "holds labels, and is left out" in found.notes[0]
            np.testing.assert_allclose(found(points), estimator.predict_proba(points), atol=1e-5)


def test_what_is_not_read_is_named_with_its_place(tmp_path: Path) -> None:
    for line, says in (
        ("y = Round(x)", r"Round \(node 'y' of net\.onnx\).* jumps.*These are: .*Relu"),
        ("y = Where(c, x, x)\n c = Greater(x, t)", "read before"),
        ("c = Greater(x, t)\n y = Where(c, x, n)\n n = Neg(x)", "read before"),
        ("n = Neg(x)\n c = Greater(x, t)\n y = Where(c, x, n)", "comparing numbers"),
        ("y = Nothing(x)", "Nothing"),
        ("y = Add(x, z)", "nothing computes 'z'"),
        ("y = Conv(x, t)", "not read in this form|Conv"),
        ("y = BatchNormalization<training_mode=1>(x, m, m, m, m)", "training mode"),
        ("i = Cast<to=7>(x)\n y = Cast<to=1>(i)", "jumps"),
    ):
        text = f"net (float[N, 4] x) => (float[N, 4] y) {{ {line} }}"
        with pytest.raises(hs.TargetError, match=says):
            hs.from_onnx(written(tmp_path, text, t=np.float32(0), m=np.ones(4, np.float32)))
    with pytest.raises(hs.TargetError, match="no tensor of real numbers"):
        hs.from_onnx(written(tmp_path, "net (int64[N, 4] x) => (int64[N, 4] y) { y = Identity(x) }"))
    with pytest.raises(hs.TargetError, match="unknown sizes"):
        hs.from_onnx(written(tmp_path, "net (float[N, M] x) => (float[N, M] y) { y = Identity(x) }"))
    path = written(tmp_path, "net (float[N, M] x) => (float[N, M] y, int64[N, 1] k) { y = Relu(x)\n k = ArgMax(x) }")
    assert hs.from_onnx(path, shape=(5,)).input_shape == (5,)
    with pytest.raises(hs.TargetError, match="no output"):
        hs.from_onnx(path, shape=(5,), outputs=["z"])


def test_files_that_reach_outside_or_claim_absurd_shapes_are_refused(tmp_path: Path) -> None:
    text = "net (float[N, 4] x) => (float[N, 4] y) { y = Add(x, w) }"
    model = parser.parse_model(HEADER + text)
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="../../etc/passwd")
    model.graph.initializer.append(tensor)
    with pytest.raises(hs.TargetError, match=r"stored outside of the file, in '\.\./\.\./etc/passwd'"):
        hs.from_onnx(saved(tmp_path, model))
    beside = tmp_path / "net.onnx.data"
    tensor.external_data[0].value = beside.name
    del model.graph.initializer[:]
    tensor.external_data.add(key="length", value="16")
    model.graph.initializer.append(tensor)
    beside.symlink_to("/etc/hostname")
    with pytest.raises(hs.TargetError, match="stored outside of the file"):
        hs.from_onnx(saved(tmp_path, model))
    beside.unlink()
    beside.write_bytes(bytes(15))
    with pytest.raises(hs.TargetError, match="does not hold the 16 bytes"):
        hs.from_onnx(saved(tmp_path, model))
    beside.write_bytes(np.arange(4, dtype=np.float32).tobytes())
    np.testing.assert_array_equal(hs.from_onnx(saved(tmp_path, model))(np.zeros(4)), np.arange(4))
    for dims, data, says in (
        ([1 << 40], b"1234", "at most"),
        ([4], b"1234", "cannot be read"),
        ([4], b"", "holds no numbers"),
        ([-4], b"1234", "at most"),
    ):
        wrong = parser.parse_model(HEADER + text)
        wrong.graph.initializer.append(TensorProto(name="w", data_type=TensorProto.FLOAT, dims=dims, raw_data=data))
        with pytest.raises(hs.TargetError, match=says):
            hs.from_onnx(saved(tmp_path, wrong))
    huge = np.array([1 << 40])
    for line in ("w = ConstantOfShape(n)", "w = Expand(x, n)", "w = Tile(x, m)", "w = Range(o, n, p)", "w = Pad(x, q)"):
        graph = f"net (float[N, 4] x) => (float[N, 4] y) {{ {line}\n y = Add(x, w) }}"
        given = {
            "n": huge,
            "m": np.array([1, 1 << 40]),
            "o": np.array(0),
            "p": np.array(1),
            "q": np.array([0, 1 << 40, 0, 0]),
        }
        with pytest.raises(hs.TargetError, match="at most"):
            hs.from_onnx(written(tmp_path, graph, **given))


def test_files_that_ask_for_too_much_or_make_no_sense_are_refused_at_once(tmp_path: Path) -> None:
    large, one = np.array([1 << 19, 1]), np.ones((1, 1, 3, 3), np.float32)
    many = "\n".join(f"c{k} = ConstantOfShape(m)" for k in range(5))
    names = ", ".join(f"c{k}" for k in range(5))
    image = "net (float[N, 1, 4, 4] x) => (float[N, 1, 4, 4] y)"
    row = "net (float[N, 4] x) => (float[N, 4] y)"
    for head, lines, says in (
        (row, "a = Relu(x)\n a = Neg(x)\n y = Identity(a)", "'a' is computed twice"),
        (row, "y = Add(x, y)", "'y' is read before it is computed"),
        (row, many + f"\n y = Sum(x, {names})", "up to here the nodes of the file hold"),
        (row, "e = Expand(x, n)\n r = Relu(e)\n y = ReduceSum(r)", "numbers that depend on the input"),
        (row, "y, z = Split<axis=1>(x, s)", "takes no numbers, or returns none"),
        (row, "y = Relu(x, x, x, x)", r"Relu \(node 'y' of net.onnx\) does not take inputs of shapes"),
        (image, "y = Conv<strides=[-1, 1]>(x, w)", r"strides \(-1, 1\)"),
        (image, "y = AveragePool<kernel_shape=[900, 900], pads=[899, 899, 899, 899]>(x)", "all windows together"),
        ("net (float[N, 600] x) => (float[N, 600] y)", "y = Softmax(x)", "a softmax over 600 numbers; at most 512"),
    ):
        path = written(tmp_path, f"{head} {{ {lines} }}", n=large, m=np.array([1 << 24]), w=one, s=np.array([0, 4]))
        with pytest.raises(hs.TargetError, match=says) as raised:
            hs.from_onnx(path, outputs=["y"])
        assert "damaged" not in str(raised.value)
    twice = parser.parse_model(HEADER + f"{row} {{ y = Add(x, w) }}")
    twice.graph.initializer.extend([numpy_helper.from_array(np.ones(4, np.float32), "w")] * 2)
    with pytest.raises(hs.TargetError, match="there are two tensors 'w'"):
        hs.from_onnx(saved(tmp_path, twice))


def test_networks_are_compared_where_they_are_defined(tmp_path: Path) -> None:
    """At zero the logarithm is minus infinity, and below it nothing: what is left is compared, or that is said."""
    some = hs.from_onnx(written(tmp_path, "net (float[N, 1] x) => (float[N, 1] y) { y = Log(x) }"))
    assert some.difference is not None
    assert 0 < some.difference.samples < 32
    none = hs.from_onnx(written(tmp_path, "net (float[N, 64] x) => (float[N, 64] y) { y = Log(x) }"))
    assert none.difference is None
    assert "nothing is compared" in repr(none)
    assert hs.compile(some, (0.5, 2), 1e-3).certificate.error <= 1e-3


def test_what_is_no_onnx_file_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(hs.TargetError, match="no such file"):
        hs.from_onnx(tmp_path / "none.onnx")
    good = written(tmp_path, "net (float[N, 4] x) => (float[N, 4] y) { y = Relu(x) }").read_bytes()
    for content in (b"", b"not a model", good[: len(good) // 2], b"PK\x03\x04" + bytes(100)):
        (tmp_path / "bad.onnx").write_bytes(content)
        with pytest.raises(hs.TargetError, match=r"not an ONNX file|no input"):
            hs.from_onnx(tmp_path / "bad.onnx")
    node = helper.make_node("Relu", ["x"], ["y"], domain="com.example")
    graph = helper.make_graph([node], "net", [helper.make_tensor_value_info("x", 1, [1, 2])], [])
    graph.output.append(helper.make_tensor_value_info("y", 1, [1, 2]))
    with pytest.raises(hs.TargetError, match=r"Relu .* is not read"):
        hs.from_onnx(saved(tmp_path, helper.make_model(graph)))


def test_damaged_files_are_read_or_refused_and_nothing_else(tmp_path: Path) -> None:
    text = "net (float[N, 4] x) => (float[N, 2] y) { h = MatMul(x, w)\n r = Relu(h)\n y = Slice(r, a, b, a) }"
    good = written(tmp_path, text, w=np.ones((4, 3), np.float32), a=np.array([1]), b=np.array([3])).read_bytes()
    random = np.random.default_rng(0)
    damaged, refused = tmp_path / "damaged.onnx", 0
    for _ in range(150):
        content = bytearray(good)
        for place in random.integers(0, len(good), random.integers(1, 4)):
            content[place] = random.integers(0, 256)
        damaged.write_bytes(content)
        try:
            hs.from_onnx(damaged)
        except hs.TargetError:
            refused += 1
    assert refused > 50


def test_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(hs.TargetError, match=r"needs the package onnx: pip install .headsmith\[onnx\]"):
        hs.from_onnx(tmp_path / "net.onnx")


def test_remainders_of_shapes_are_read_and_of_values_are_not(tmp_path: Path) -> None:
    """torch writes nn.Unflatten with a remainder of sizes, which are constants; of a value, a remainder jumps."""
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[1, 4] x) => (float[1, 4] y) <float[1] seven = {7.0}, float[1] four = {4.0}> {
        rest = Mod <fmod = 1> (LEFT, four)
        y = Add(x, rest)
    }"""
    path = tmp_path / "net.onnx"
    onnx.save(onnx.parser.parse_model(text.replace("LEFT", "seven")), path)
    assert hs.from_onnx(path)(np.zeros(4)).tolist() == [3.0] * 4
    onnx.save(onnx.parser.parse_model(text.replace("LEFT", "x")), path)
    with pytest.raises(hs.TargetError, match="it jumps"):
        hs.from_onnx(path)
