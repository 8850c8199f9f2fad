"""README.md of an exported model: what is proven, what it costs, how to use it, how to check it."""

from __future__ import annotations

from typing import Any

from headsmith.core.figures import bound
from headsmith.core.markup import markdown_table

MEANING = {
    "approximation": "tables, circuits and networks against the target",
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
circuit["nodes"]["a0.h0"], circuit["edges"]["a0.h0->logits"]""",
    "rocq": """\
import subprocess

subprocess.run(["coqc", "model.v"], check=True)     # Rocq, with its library Interval, proves the theorems""",
}

STOCK_USE = """\
import torch
from transformers import {auto}

model = {auto}.from_pretrained(".").eval()              # plain weights: no code of ours
table = model.get_input_embeddings().weight.detach()
embeds = table[:{known}].repeat(len(x), 1, 1)           # {opening}
embeds[:, {references}:] += {x} @ table[{first}:{last}]     # {taken}
with torch.no_grad():
    y = model(inputs_embeds=embeds).logits{taking}"""

WORD_USE = """\
import torch
from transformers import {auto}, AutoTokenizer

model = {auto}.from_pretrained(".").eval()      # plain weights: no code of ours
tokenizer = AutoTokenizer.from_pretrained(".")                              # {count} words for numbers
ids = tokenizer("{prompt}", return_tensors="pt").input_ids              # every variable, in this order
with torch.no_grad():
    y = model(ids).logits{taking}"""

LENS_USE = """

# The same model in TransformerLens: patterns, and hooks at every head.
from transformer_lens.model_bridge import TransformerBridge

bridge = TransformerBridge.boot_transformers(".")
with torch.no_grad():
    logits, cache = bridge.run_with_cache({entered})
cache["pattern", 0]                                 # (batch, head, query, key): the first layer"""

UNPADDED = (
    "All sequences of a batch have the same length, and nothing is padded: of padded ones nothing is proven. A "
    "classifier answers at the last token that it is given, and where numbers enter as `inputs_embeds` it cannot tell "
    "padding on the right from data: its answer is then that of the padding. Ask for sequences of other lengths one by "
    "one."
)

FRONT = """---
library_name: transformers
tags: [headsmith, certified, attention-only]
---
"""


def stock_use(stock: Any) -> str:
    """How a stock model is called from transformers alone."""
    references, several, names = stock.reference_tokens, stock.sequences, ", ".join(stock.names[:8])
    more, language = ", ..." if len(stock.names) > 8 else "", "lm_head.weight" in stock.tensors
    auto = "CausalLM" if language else f"{'Token' if several else 'Sequence'}Classification"
    outputs = f", :{len(stock.config['id2label'])}]" if language else "]"
    lens = LENS_USE.format(entered="ids" if stock.words else "embeds, start_at_layer=0") if language else ""
    if stock.words:
        words = [[word for word in stock.words if word.partition("=")[0] == name] for name in stock.names]
        prompt, taking = " ".join(each[len(each) // 3] for each in words), f"[:, -1{outputs}" if language else ""
        known = len(stock.words)
        return WORD_USE.format(auto=f"AutoModelFor{auto}", count=known, prompt=prompt, taking=taking) + lens
    kept = f"[:, {references}:{outputs}" if several else f"[:, -1{outputs}" if language else ""
    return (STOCK_USE + lens).format(
        auto=f"AutoModelFor{auto}",
        known=f"{references} + x.shape[1]" if several else references + 1,
        opening=f"{references} reference tokens, then the data token{'s' if several else ''}",
        references=references,
        x="x" if several else "x[:, None]",
        first=references + stock.tokens,
        last=references + stock.tokens + len(stock.names),
        taken=f"x: float32, (batch, {f'1 to {stock.tokens} tokens, ' if several else ''}{names}{more})",
        taking=kept,
    )


def card(model: Any, to: str, fused: bool, stock: Any = None) -> str:
    """The text of README.md; `stock` is the stock model that is exported, if one is."""
    certificate, told = (model if stock is None else stock).certificate, model.explain()
    title = told.partition("\n")[0]
    rows = [("error", bound(certificate.error), "proven, for every input in the domain")]
    rows += [(name, bound(value), MEANING.get(name, "")) for name, value in certificate.parts.items()]
    sections = [
        f"# {title}",
        f"A transformer of {model.transformer.attention} attention alone, compiled by Headsmith with a proof of its "
        f"error"
        f"{', here through closed forms of its heads' if fused else ''}"
        f"{f'. It is a stock {to}: norms and MLPs are there, and its error counts them' if stock else ''}.",
        "## What is proven",
        f"For every input in the domain and every output, |model - target| <= {bound(certificate.error)}, when it runs "
        f"in {certificate.dtype} with sums in any order and exp within 4 units in the last place. Outside of the "
        "domain nothing is promised, and nothing is refused here.",
        markdown_table(("part", "bound", "what it is"), rows),
        *(
            ["This is assumed of the runtime:", "\n".join(f"- {each}" for each in stock.certificate.assumes)]
            if stock
            else []
        ),
        "## What it costs",
        model.bill.markdown(),
        "## Use",
        f"```python\n{USES[to] if stock is None else stock_use(stock)}\n```",
        *([UNPADDED] if stock else []),
        "## Check",
        "`headsmith verify DIR` proves the error again, with the proof in `proof.safetensors`, and makes sure that "
        "everything else in this folder is the proven model, bit for bit."
        + (" `python -m headsmith.kernel DIR` asks the proof checker alone." if stock else ""),
        "## What every part does",
        f"```\n{told}\n```",
    ]
    picture = ["![the model and its error](picture.png)"] if to == "huggingface" else []
    return (
        (FRONT if to == "huggingface" or stock else "") + "\n\n".join([*sections[:2], *picture, *sections[2:]]) + "\n"
    )
