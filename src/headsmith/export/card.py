"""README.md of an exported model: what is proven, what it costs, how to use it, how to check it."""

from __future__ import annotations

from typing import Any

from headsmith.core.figures import bound
from headsmith.core.markup import markdown_table

MEANING = {
    "approximation": "tables and circuits against the target",
    "softmax": "heads of finite scale against what they stand for",
    "leak": "attention that reaches other tokens",
    "rounding": "floating point, in any order of summation",
    "evaluation": "the sampled callable against its function",
}

USES = {
    "torch": """\
import headsmith_model                              # the file beside this one; needs torch and safetensors

model = headsmith_model.load(".")
model(x)                                            # a tensor of real numbers
model.layers[0].heads[0]                            # a place for forward hooks; every head has one""",
    "onnx": """\
import onnxruntime

session = onnxruntime.InferenceSession("model.onnx")
(y,) = session.run(None, {"x": x})                  # an array of real numbers, with a batch axis""",
    "huggingface": """\
from transformers import AutoModel

model = AutoModel.from_pretrained(".", trust_remote_code=True)
model(x).outputs                                    # x is a tensor of real numbers
model.transformer.layers[0].heads[0]                # a place for forward hooks; every head has one""",
    "transformerlens": """\
import headsmith_lens                               # the file beside this one

lens = headsmith_lens.load(".")
lens(x)                                             # what the model computes
outputs, cache = lens.run_with_cache(x)             # every activation by TransformerLens' names
lens.bridge                                         # the TransformerBridge itself""",
    "circuit": """\
import json

circuit = json.load(open("circuit.json"))           # ground truth: what every head does
circuit["layers"][0]["heads"][0]""",
}

FRONT = """---
library_name: transformers
tags: [headsmith, certified, attention-only]
---
"""


def card(model: Any, to: str, fused: bool) -> str:
    """The text of README.md."""
    certificate, told = model.certificate, model.explain()
    title = told.partition("\n")[0]
    rows = [("error", bound(certificate.error), "proven, for every input in the domain")]
    rows += [(name, bound(value), MEANING.get(name, "")) for name, value in certificate.parts.items()]
    sections = [
        f"# {title}",
        f"A softmax transformer of attention alone, compiled by Headsmith with a proof of its error"
        f"{', here through closed forms of its heads' if fused else ''}.",
        "## What is proven",
        f"For every input in the domain and every output, |model - target| <= {bound(certificate.error)}, when it runs "
        f"in {certificate.dtype} with sums in any order and exp within 4 units in the last place. Outside of the "
        "domain nothing is promised, and nothing is refused here.",
        markdown_table(("part", "bound", "what it is"), rows),
        "## What it costs",
        model.bill.markdown(),
        "## Use",
        f"```python\n{USES[to]}\n```",
        "## Check",
        "`headsmith verify DIR` proves the error again, with the proof in `proof.safetensors`, and makes sure that "
        "everything else in this folder is the proven model, bit for bit.",
        "## What every part does",
        f"```\n{told}\n```",
    ]
    picture = ["![the model and its error](picture.png)"] if to == "huggingface" else []
    return (FRONT if to == "huggingface" else "") + "\n\n".join([*sections[:2], *picture, *sections[2:]]) + "\n"
