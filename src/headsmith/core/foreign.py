"""What other libraries hand over: tensors become arrays, models are told what to do. None of them is imported here."""

from __future__ import annotations

from typing import Any


def advice(thing: Any) -> str | None:
    """What to do with a model of another library; None for anything else."""
    family, kind = family_of(thing), type(thing).__name__
    if family == "torch" and hasattr(thing, "state_dict"):
        return f"this is a torch module ({kind}): give hs.from_torch(module, example), with a batch of inputs"
    if family == "torch":
        return f"this is a torch {kind}: give weights as pairs, hs.Network([(W, b), ...]), W of shape (out, in)"
    if family == "sklearn":
        return f"this is an estimator of scikit-learn ({kind}): give hs.from_sklearn(estimator)"
    if family in ("keras", "tensorflow"):
        return (
            f"this is a {family} {kind}: its kernels are (in, out), so a chain of Dense layers with ReLUs between them "
            f"is hs.Network([(layer.kernel.numpy(), layer.bias.numpy()) for layer in model.layers], transposed=True)"
        )
    return None


def family_of(thing: Any) -> str:
    """The library that the thing's class, or one that it extends, comes from; empty for any other."""
    for each in type(thing).__mro__:
        family = str(each.__module__).split(".")[0]
        if family in ("torch", "sklearn", "keras", "tensorflow"):
            return family
    return ""


def plain(array: Any) -> Any:
    """A tensor of torch as an array, without its gradient; anything else as it is."""
    if family_of(array) == "torch" and hasattr(array, "detach"):
        return array.detach().cpu().double().numpy()
    return array
