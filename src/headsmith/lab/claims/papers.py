"""The papers whose claims are checked, for citation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Paper:
    """A paper on arXiv; the ids of its claims start with `letter`."""

    letter: str
    title: str
    authors: tuple[str, ...]
    arxiv: str

    @property
    def citation(self) -> str:
        """The paper in one line."""
        return f"{', '.join(self.authors)}: {self.title}. arXiv:{self.arxiv}"

    @property
    def bibtex(self) -> str:
        """The paper as an entry of a bibliography; the claims cite it by `key`."""
        year = f"20{self.arxiv[:2]}"
        return (
            f"@misc{{{self.key},\n  title = {{{self.title}}},\n  author = {{{' and '.join(self.authors)}}},\n"
            f"  year = {{{year}}},\n  eprint = {{{self.arxiv}}},\n  archivePrefix = {{arXiv}}\n}}"
        )

    @property
    def key(self) -> str:
        return f"arxiv{self.arxiv.replace('.', '')}"


PAPERS = (
    Paper("R", "Transformer Approximations from ReLUs", ("Hu", "Lu", "Lee", "Liu"), "2604.24878"),
    Paper("U", "Universal Approximation with Softmax Attention", ("Hu", "Liu", "Chen", "Wu", "Liu"), "2504.15956"),
    Paper(
        "M",
        "On the Expressive Power of Transformers for Maxout Networks and Continuous Piecewise Linear Functions",
        ("Gu", "Yang", "Zhou"),
        "2603.03084",
    ),
    Paper(
        "A",
        "Subcritical Signal Propagation at Initialization in Normalization-Free Transformers",
        ("Alekseev",),
        "2604.11890",
    ),
    Paper(
        "I",
        "Learning to Reason Iteratively and Parallelly for Complex Visual Reasoning Scenarios",
        ("Jaiswal", "Roy", "Fernando", "Tan"),
        "2411.13754",
    ),
)
"""In the order in which claims are listed."""


def paper_of(id: str) -> Paper | None:
    """The paper that a claim is from."""
    return next((paper for paper in PAPERS if id.startswith(paper.letter)), None)


def papers_of(ids: Iterable[str]) -> Sequence[Paper]:
    """The papers of several claims, each once."""
    letters = {id[:1] for id in ids}
    return [paper for paper in PAPERS if paper.letter in letters]
