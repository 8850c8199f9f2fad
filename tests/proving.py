"""What the kernel proves of a model that a test has put together: a proof is written for it, and checked."""

from __future__ import annotations

from typing import Any

from headsmith.core.certificate import Certificate
from headsmith.lower.prove import certified, drafted


def certify(graph: Any, choices: Any, box: Any, transformer: Any, fusion: Any = None) -> Certificate:
    """The certificate; CertificateError where there is none."""
    return certified(drafted(graph, box, choices, fusion, transformer), transformer)
