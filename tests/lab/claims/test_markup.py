"""Claims as Markdown and LaTeX: every figure is there, and nothing that would break a document."""

from headsmith.lab.claims.markup import latex, markdown
from headsmith.lab.claims.rows import CheckedClaim

ROWS = [
    {"target": "x*y", "domain": "[-1, 1]^2", "certified": 9.5e-7, "heads": 20, "note": None},
    {"target": "a|b_c & 50%", "domain": "", "certified": 1e-6, "heads": 1234, "more": True},
]
CLAIM = CheckedClaim(
    "R4", "costs {this} & that", "two targets", {"rows": ROWS}, True, "holds: 20 heads", 0.1, tag="ours"
)
EMPTY = CheckedClaim("R5", "nothing", "nothing", {}, False, "fails: nothing", 0.1, tag="ours")


def test_markdown() -> None:
    text = markdown([CLAIM, EMPTY])
    lines = text.splitlines()
    assert lines[2] == "| R4 | costs {this} & that | ours | two targets | holds: 20 heads |"
    assert "| target | domain | certified | heads | note | more |" in lines
    assert "| --- | --- | ---: | ---: | ---: | --- |" in lines
    assert "| x*y | [-1, 1]^2 | 9.5e-07 | 20 |  |  |" in lines
    assert r"| a\|b_c & 50% |  | 1e-06 | 1,234 |  | yes |" in lines
    assert "## R5: nothing" in lines


def test_latex() -> None:
    text = latex([CLAIM, EMPTY])
    caption = r"\caption{R4: costs \{this\} \& that. Ran: two targets. Holds: 20 heads. Claimed in arXiv:2604.24878.}"
    assert caption in text
    assert r"\begin{tabular}{llrrrl}" in text
    assert r"x*y & [-1, 1]$^{2}$ & $9.5 \cdot 10^{-7}$ & 20 &  &  \\" in text
    assert r"a\textbar{}b\_c \& 50\% &  & $10^{-6}$ & 1,234" in text
    assert text.count(r"\begin{table}") == text.count(r"\end{table}") == 2
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == 1
