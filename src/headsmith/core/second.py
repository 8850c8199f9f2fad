"""Two verdicts: the kernel proves a file, and the small kernel, which shares no line with it, says what it can prove.

The small kernel has no tightenings, so its bound may be wider. Where a proof needs none, both must agree: a file that
only one of them certifies, or that the small one bounds by more than 1.2 times what is claimed, is refused. Where a
proof uses tightenings, the small kernel's bound stands beside the certificate, and a file is refused only if a
condition fails that both kernels check. Kinds that the small kernel does not know are proved by the kernel alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from headsmith.core.errors import CertificateError
from headsmith.core.figures import bound

AGREE = 1.2
NAMED = ("views", "bends", "alike", "steps", "powers")
KERNEL, SMALL = "kernel", "small kernel"


@dataclass(frozen=True)
class Second:
    """What the small kernel says of a file that the kernel certified: a bound, or why it has none; and what tightenings
    the proof uses, which it does without."""

    error: float | None
    reason: str
    tightenings: tuple[str, ...]
    agrees: bool

    @property
    def proved_by(self) -> tuple[str, ...]:
        """Who proved what is claimed (of the small kernel: up to a factor of 1.2)."""
        return (KERNEL, SMALL) if self.agrees else (KERNEL,)

    @property
    def text(self) -> str:
        """One sentence for people."""
        if self.agrees:
            return f"proved by the kernel and, independently, by the small kernel ({bound(self.error or 0.0)})"
        if self.error is not None:
            return f"proved by the kernel; the small kernel, which does without {self.used}, proves {bound(self.error)}"
        if self.tightenings and not self.reason.startswith("outside"):
            return f"proved by the kernel; the small kernel, without {self.used}, proves nothing: {self.reason}"
        return f"proved by the large kernel alone ({self.reason})"

    @property
    def used(self) -> str:
        return ", ".join(self.tightenings)


def second_opinion(header: Mapping[str, Any], tensors: Mapping[str, Any], rounding: float, path: Any = None) -> Second:
    """The small kernel's verdict on what the kernel has certified, whose part `rounding` is what the kernel proved.
    Raises CertificateError where they must agree, and do not. With `path`, the small kernel reads the file itself."""
    from headsmith.small_kernel import check as small
    from headsmith.small_kernel.bounds import Loose, Outside, Refused

    claimed, error, problem = header["claim"]["error"], None, ""
    run: Callable[[], Any] = lambda: small.check(path) if path is not None else small.check_contents(header, tensors)  # noqa: E731
    try:
        error = run().error
        if error <= AGREE * claimed + 1e-100:
            return Second(error, "", (), True)
    except Outside as outside:
        return Second(None, str(outside), (), False)
    except MemoryError:
        return Second(None, "outside the small kernel: it takes more memory than there is", (), False)
    except Loose as loose:
        problem = str(loose)
    except Refused as refused:
        raise CertificateError(f"the kernel certifies it, and the small kernel refuses it: {refused}") from None
    used = tuple(tightenings(header, tensors, rounding))
    if not used:
        found = problem or f"the small kernel proves no more than {error:.6g}, and {claimed:.6g} is claimed"
        raise CertificateError(f"two kernels disagree about a proof that uses no tightening: {found}")
    return Second(error, problem, used, False)


def tightenings(header: Mapping[str, Any], tensors: Mapping[str, Any], rounding: float) -> Iterator[str]:
    """What a proof uses beyond the rules of the small kernel: what it names; folds and joined moves, which the kernel
    finds by the shape of the circuit (docs/certificate.md, 10.3 and 14); and, where rounding is more than a tenth of
    the bound, that the kernel counts roundings one by one (11), where the small one multiplies sizes by a number."""
    proof = header["proof"]
    yield from (name for name in NAMED if proof.get(name))
    nodes = proof["circuit"]["nodes"]
    reads = [reads_of(node) for node in nodes]
    gates = [n for n, node in enumerate(nodes) if node["kind"] == "relu"]
    size = {g: nodes[g]["size"] for g in gates}
    paths: dict[int, set[int]] = {}
    for g in gates:
        for a in reads[g]:
            for z in {a, *(reads[a] if nodes[a]["kind"] == "affine" else ())}:
                paths.setdefault(z, set()).add(g)
    readers = [{m for m, each in enumerate(reads) if n in each} for n in range(len(nodes))]
    if any(
        any(readers[g] & readers[z] for g in behind) or (sum(size[g] for g in behind) > 1 and narrow(nodes[z], tensors))
        for z, behind in paths.items()
    ):
        yield "folds"
    if any(node["kind"] == "move" and all(t in (-1, i) for i, t in enumerate(node["targets"])) for node in nodes):
        yield "joined moves"
    if rounding > 0.1 * header["claim"]["error"]:
        yield "single roundings"


def reads_of(node: Mapping[str, Any]) -> list[int]:
    """The nodes that a node of a graph reads, as its header names them."""
    single = [node[name] for name in ("argument", "left", "right", "numerator", "denominator") if name in node]
    return [*single, *node.get("arguments", []), *(term["node"] for term in node.get("terms", []))]


def narrow(node: Mapping[str, Any], tensors: Mapping[str, Any]) -> bool:
    """Whether a node has one component."""
    if node["kind"] == "affine":
        return bool(len(tensors[node["bias"]]) == 1)
    return bool(len(node["names"]) == 1 if node["kind"] == "input" else node.get("size") == 1)
