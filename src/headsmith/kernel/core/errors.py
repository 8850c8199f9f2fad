"""Why a file is not certified, in one sentence; and how much work a file may ask for.

Loops whose length a file decides say how much they are about to do (`spend`), in units of about a nanosecond: sums and
products of arrays, of polynomials, of power series, of matrices. A file that asks for more than it may is refused, so
that every file has an answer in a few minutes, and some ten microseconds more for each number in it. Large arrays are
made only while much work is left, so that memory has a limit too. Outside of `limited`, nobody counts.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf

WORK, WORK_A_NUMBER = 1e11, 2e4  # for a file, and for each number in it
_left = threading.local()


class Refused(Exception):
    """The file is damaged, or its proof does not prove its claim."""

    def __str__(self) -> str:
        """The reason, cut where it is long, in which nothing of a file moves a cursor and writes over the verdict."""
        return "".join(each if each.isprintable() else "?" for each in super().__str__()[:500])


class ThinMargin(Refused):
    """Something is read that may be further off than the proof allows for."""


class NoHead(Refused):
    """A gate that may cross zero, as far as ranges know, has no head."""


def refuse(wrong: object, why: str) -> None:
    """Raise Refused with the reason where something is wrong."""
    if wrong:
        raise Refused(why)


def spend(work: float, entries: float = 0.0) -> None:
    """Raise Refused if that is more than is left; or for each entry of an array less than 5000 units are."""
    _left.work = getattr(_left, "work", inf) - work
    refuse(_left.work < 5000.0 * entries, "the file asks for more work than this kernel does")


@contextmanager
def limited(work: float) -> Iterator[None]:
    """Inside, no more is done than so much work."""
    saved, _left.work = getattr(_left, "work", inf), work
    try:
        yield
    finally:
        _left.work = saved
