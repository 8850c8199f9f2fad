"""Every error that Headsmith raises on purpose: each message says what happened, where, the numbers, what to change."""


class HeadsmithError(Exception):
    """The base of all errors below."""


class TargetError(HeadsmithError, ValueError):
    """The target cannot be compiled as given: a shape that does not chain, a weight that is not finite, ..."""


class DomainError(HeadsmithError, ValueError):
    """The domain is not a finite box, or an input lies outside it."""


class UnreachableError(HeadsmithError, ValueError):
    """The asked error cannot be certified in this dtype. `smallest` can; `part` is what blocks."""

    def __init__(self, message: str, *, part: str, smallest: float) -> None:
        super().__init__(message)
        self.part = part
        self.smallest = smallest


class UnfittableError(HeadsmithError):
    """No table head was found for an expression; `node` is its number in the fused target."""

    def __init__(self, message: str, node: int) -> None:
        super().__init__(message)
        self.node = node


class CertificateError(HeadsmithError, ValueError):
    """The proof kernel refuses: the weights do not compute the target within any bound it can derive."""


class TooManyPiecesError(CertificateError):
    """A circuit has too many linear pieces to be compared with its function, cell by cell. `target` is the node."""

    target: int = -1


class ThinMarginError(CertificateError):
    """An argument of an approximated node may be off by more than the node's margin."""


class MissingHeadError(CertificateError):
    """A gate has no head, and cannot be proven to keep its sign."""


class FileFormatError(HeadsmithError, ValueError):
    """The file is not a complete Headsmith model of a version that this release reads."""


REFUSALS = (UnfittableError, UnreachableError, TargetError, DomainError)
"""What says that one way to a model leads nowhere: another one may."""
