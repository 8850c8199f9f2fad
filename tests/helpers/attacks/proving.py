"""What the kernel proves of models that tests have put together or changed."""

from __future__ import annotations

import json
from typing import Any

from headsmith.core.certificate import Certificate
from headsmith.core.errors import CertificateError
from headsmith.export.file import Contents, header_of
from headsmith.kernel.core.check import proved
from headsmith.kernel.core.errors import Refused
from headsmith.prove.prove import certified, drafted


def certify(graph: Any, choices: Any, box: Any, transformer: Any, fusion: Any = None) -> Certificate:
    """A proof is written, and checked. CertificateError where there is none."""
    return certified(drafted(graph, box, choices, fusion, transformer))


def proven(model: Any) -> Certificate:
    """What the proof that a model carries proves of its weights, whatever the model claims."""
    parts = (model.graph, model.choices, model.box, model.transformer, model.certificate, model.fusion)
    tensors: dict[str, Any] = {}
    header = header_of(Contents(*parts, proof=model.proof), tensors)
    try:
        return Certificate.of(proved(json.loads(json.dumps(header)), tensors))
    except Refused as problem:
        raise CertificateError(str(problem)) from None
