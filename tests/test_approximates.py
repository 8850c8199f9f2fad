"""A network with the function that it was made for: the certificate is about the function."""

import json

import numpy as np
import pytest
from click.testing import CliRunner
from helpers.attacks.saved import read, write
from helpers.models.networks import product_network, square_network

import headsmith as hs
from headsmith.cli import commands
from headsmith.report.points import errors_at

BOX = {"x": (0, 1)}


@pytest.fixture(scope="module")
def squared():
    return hs.compile(square_network(5), BOX, 1e-3, approximates="x**2")


def test_the_total_is_that_of_the_network_and_that_of_the_attention(squared):
    alone = hs.compile(square_network(5), BOX, 1e-3 - 4.0**-6).certificate
    certificate = squared.certificate
    assert certificate.parts["approximation"] == pytest.approx(4.0**-6, abs=1e-12)
    assert certificate.error <= 1e-3
    assert alone.parts["approximation"] == 0.0
    assert certificate.error == pytest.approx(alone.error + 4.0**-6, rel=1e-6)
    assert certificate.target != alone.target


def test_the_certificate_holds_against_the_function(squared):
    x = np.linspace(0, 1, 20001)[:, None]
    worst = np.abs(squared(x) - x**2).max()
    assert 4.0**-6 * 0.999 <= worst <= squared.certificate.error
    assert hs.falsify(squared).error <= squared.certificate.error
    assert errors_at(squared, x).max() == pytest.approx(worst, rel=1e-9)


def test_a_saved_model_carries_network_function_and_proof(squared, tmp_path):
    path = tmp_path / "square.safetensors"
    squared.save(path)
    assert hs.verify(path).error == pytest.approx(squared.certificate.error, rel=1e-9)
    again = hs.load(path)
    assert again.certificate == squared.certificate
    assert repr(again).startswith("<Compiled x**2 on x: [0, 1]")
    assert "through a network that approximates it, of 15 gates" in again.explain()
    header, tensors = read(path)
    assert header["claim"]["target"] == squared.certificate.target
    del header["approximates"]
    write(path, header, tensors)
    with pytest.raises(hs.CertificateError, match="target"):
        hs.verify(path)


@pytest.mark.parametrize("name", ["approximates", "cells", "claim"])
def test_another_function_or_a_smaller_claim_is_refused(squared, tmp_path, name):
    path = tmp_path / "square.safetensors"
    squared.save(path)
    header, tensors = read(path)
    match name:
        case "approximates":
            (function,) = (node for node in header["approximates"]["nodes"] if node["kind"] == "function")
            function["name"] = "sin"
        case "cells":
            header["proof"]["pieces"][0]["approximation"] = "0"
        case "claim":
            header["claim"]["parts"]["approximation"] *= 1.0 - 1e-6
    write(path, header, tensors)
    with pytest.raises(hs.CertificateError):
        hs.verify(path)


def test_a_changed_weight_of_the_network_is_refused_or_costs_what_it_costs(squared, tmp_path):
    """In the network and in the model alike, so that only what is approximated can tell."""
    layers = [(np.array(w), np.array(b)) for w, b in square_network(5).layers]
    layers[-1][1][0] += 1e-5
    moved = hs.compile(hs.Network(layers, names=["x"]), BOX, 1e-3, approximates="x**2").certificate
    assert moved.parts["approximation"] == pytest.approx(4.0**-6 + 1e-5, abs=1e-12)
    path = tmp_path / "square.safetensors"
    squared.save(path)
    header, tensors = read(path)
    last = header["source"]["nodes"][header["source"]["output"]]["bias"]
    tensors[last] = tensors[last] + 1e-5
    tensors["readout_bias"] = tensors["readout_bias"] + 1e-5
    write(path, header, tensors)
    with pytest.raises(hs.CertificateError):
        hs.verify(path)


def test_two_variables():
    model = hs.compile(product_network(1), (-1, 1), 0.2, approximates=lambda x, y: x * y)
    part = model.certificate.parts["approximation"]
    assert 4.0**-2 <= part <= 1.02 * 4.0**-2
    points = np.random.default_rng(0).uniform(-1, 1, (5000, 2))
    assert np.abs(model(points)[:, 0] - points.prod(axis=1)).max() <= model.certificate.error


def sums(inputs: int, gates: int = 3) -> hs.Network:
    """The sum of the squares of many inputs, each by a network of its own."""
    layers = []
    for place, (weights, bias) in enumerate(square_network(gates).layers):
        W = np.kron(np.eye(inputs), weights)
        layers.append((np.ones((1, inputs)) @ W, np.zeros(1)) if place == gates else (W, np.tile(bias, inputs)))
    return hs.Network(layers, names=[f"x{i}" for i in range(inputs)], transposed=False)


def test_many_inputs_where_the_network_is_a_sum():
    """Of six inputs: cells of all of them together would be without number."""
    formula = " + ".join(f"x{i}*x{i}" for i in range(6))
    model = hs.compile(sums(6, 1), (0, 1), 0.6, approximates=formula)
    assert model.certificate.parts["approximation"] == pytest.approx(6 * 4.0**-2, abs=1e-8)
    points = np.random.default_rng(0).uniform(0, 1, (1000, 6))
    assert np.abs(model(points)[:, 0] - (points**2).sum(axis=1)).max() <= model.certificate.error
    assert model.proof.stored["pieces"][0]["approximation"].count(" ") == 5
    assert model.verify().error == pytest.approx(model.certificate.error)


def test_several_outputs_and_kinks_of_the_function():
    """|x| and a hat, each by gates of its own; the hat is off by 0.01 at its top."""
    gates = ([[1.0], [-1.0], [1.0], [1.0], [1.0]], [0.0, 0.0, 0.5, 0.0, -0.5])
    network = hs.Network([gates, ([[1, 1, 0, 0, 0], [0, 0, 1.02, -2.04, 1.02]], [0.0, 0.0])], names=["x"])
    model = hs.compile(network, (-1, 1), 0.05, approximates=["abs(x)", "max(0, 0.5 - abs(x))"])
    assert model.certificate.parts["approximation"] == pytest.approx(0.01, abs=1e-6)


def test_an_error_that_the_network_alone_exceeds_is_refused_with_number_and_place():
    with pytest.raises(hs.UnreachableError, match=r"0\.00391 away from what it approximates at x = ") as refusal:
        hs.compile(square_network(3), BOX, 1e-3, approximates="x**2")
    assert refusal.value.part == "approximation"
    asked = hs.compile(square_network(3), BOX, refusal.value.smallest, approximates="x**2")
    assert asked.certificate.error <= refusal.value.smallest


def test_inputs_are_paired_by_name():
    plain = hs.Network(square_network(2).layers)
    assert hs.compile(plain, (0, 1), 0.1, approximates="t**2").box.names == ("t",)
    assert hs.compile(plain, {"u": (0, 1)}, 0.1, approximates="u**2").box.names == ("u",)
    assert hs.compile(plain, {"x0": (0, 1)}, 0.1, approximates="x0*x0").box.names == ("x0",)
    with pytest.raises(hs.TargetError, match="which is which"):
        hs.compile(hs.Network(product_network(1).layers), (-1, 1), 0.5, approximates="y*x")
    with pytest.raises(hs.TargetError, match="outputs"):
        hs.compile(plain, (0, 1), 0.1, approximates="x, x")
    with pytest.raises(hs.DomainError, match="denominator"):
        hs.compile(plain, (0, 1), 0.1, approximates="1/x")


def test_the_command_line(tmp_path):
    network, path = tmp_path / "square.npz", tmp_path / "square.safetensors"
    layers = square_network(4).layers
    np.savez(network, **{f"{n}{i}": each for i, pair in enumerate(layers) for n, each in zip("Wb", pair, strict=True)})
    arguments = [str(network), "--domain", "0:1", "--error", "2e-3", "--approximates", "x**2"]
    result = CliRunner().invoke(commands, ["compile", *arguments, "-o", str(path), "--json"])
    assert result.exit_code == 0, result.output
    certificate = json.loads(result.output)["certificate"]
    assert certificate["parts"]["approximation"] == pytest.approx(4.0**-5, abs=1e-11)
    verified = CliRunner().invoke(commands, ["verify", str(path), "--json"])
    assert verified.exit_code == 0, verified.output
