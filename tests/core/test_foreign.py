"""Models and tensors of other libraries are read where that is plain, and told what to do elsewhere."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import headsmith as hs

MATRICES = [np.arange(6.0).reshape(2, 3), np.ones((3, 1))]
"""As scikit-learn has them: (in, out)."""
BIASES = [np.zeros(3), np.zeros(1)]


def test_matrices_in_out_are_recognised_in_the_messages() -> None:
    pairs = list(zip(MATRICES, BIASES, strict=True))
    with pytest.raises(hs.TargetError, match=r"b fits the columns; .*coefs_.*W\.T.*from_sklearn"):
        hs.Network(pairs)
    with pytest.raises(hs.TargetError, match=r"pair 0 has 2 outputs but pair 1 takes 1 inputs.*scikit-learn's coefs_"):
        hs.Network([(W, np.zeros(len(W))) for W in MATRICES])
    turned = hs.Network(pairs, transposed=True)
    assert repr(turned) == "Network(2-3-1)"
    np.testing.assert_array_equal(turned.layers[0][0], MATRICES[0].T)


def test_square_matrices_are_warned_about_unless_it_is_said_what_they_are() -> None:
    square = [([[1.0, 2.0], [3.0, 4.0]], [0.0, 0.0])] * 2
    with pytest.warns(UserWarning, match="every matrix of the network is square"):
        hs.Network(square)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        hs.Network(square, transposed=False)
        hs.Network(square[:1])
        hs.Network([(np.eye(2), [0, 0])] * 2)
        hs.Network([([[1.0]], [0.0])] * 2)
        turned = hs.Network(square, transposed=True)
    np.testing.assert_array_equal(turned.layers[0][0], [[1.0, 3.0], [2.0, 4.0]])


def test_a_missing_bias_is_zeros_and_what_is_no_list_of_pairs_is_refused() -> None:
    assert hs.Network([([[1.0, 2.0]], None)]).layers[0][1].tolist() == [0.0]
    for kind in (hs.Network, hs.MaxoutNetwork):
        for wrong in (3, "net.npz", {"W": 1}):
            with pytest.raises(hs.TargetError, match="list of pairs"):
                kind(wrong)
    with pytest.raises(hs.TargetError, match=r"pair 0 is not a pair .*complex numbers"):
        hs.Network([([[1j]], [0.0])])


def test_torch() -> None:
    torch = pytest.importorskip("torch")
    module = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU(), torch.nn.Linear(3, 1, bias=False))
    for refused in (lambda: hs.compile(module, (-1, 1)), lambda: hs.Network(module)):
        with pytest.raises(hs.TargetError, match=r"torch module \(Sequential\).*hs\.from_torch"):
            refused()
    network = hs.Network([(layer.weight, layer.bias) for layer in module if isinstance(layer, torch.nn.Linear)])
    point = torch.tensor([0.25, -0.5])
    assert network([0.25, -0.5])[0] == pytest.approx(module(point).item(), rel=1e-5)
    with pytest.raises(hs.TargetError, match="torch Tensor"):
        hs.compile(torch.ones(2, requires_grad=True), (-1, 1))
