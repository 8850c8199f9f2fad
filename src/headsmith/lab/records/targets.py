"""The targets that records are kept of: what people build networks from, each on one domain, at ERRORS."""

from __future__ import annotations

from dataclasses import dataclass

ERRORS = (1e-2, 1e-4, 1e-6)


@dataclass(frozen=True)
class Entry:
    """A formula, and the interval of each of its variables, as the command line takes them: "x=-1:1 y=0.5:1"."""

    formula: str
    domain: str

    @property
    def box(self) -> dict[str, tuple[float, float]]:
        """The interval of each variable, by name."""
        found = {}
        for each in self.domain.split():
            name, _, interval = each.partition("=")
            low, _, high = interval.partition(":")
            found[name] = float(low), float(high)
        return found


ENTRIES = tuple(
    Entry(formula, domain)
    for formula, domain in (
        ("x*y", "x=-1:1 y=-1:1"),
        ("x**2", "x=-1:1"),
        ("x**3", "x=-1:1"),
        ("x**4 - 2*x**3 + x", "x=-1:1"),
        ("x**8", "x=-1:1"),
        ("x*y*z", "x=-1:1 y=-1:1 z=-1:1"),
        ("x**2 + y**2", "x=-1:1 y=-1:1"),
        ("1/x", "x=0.1:1"),
        ("1/x", "x=0.01:1"),
        ("x/y", "x=-1:1 y=0.5:1"),
        ("(1 + x)/(1 + x**2)", "x=-1:1"),
        ("1/(1 + 25*x**2)", "x=-1:1"),
        ("sqrt(x)", "x=0.1:1"),
        ("1/sqrt(x)", "x=0.1:1"),
        ("log(x)", "x=0.1:1"),
        ("exp(x)", "x=-1:1"),
        ("exp(x)", "x=-8:0"),
        ("sin(x)", "x=-3.141592653589793:3.141592653589793"),
        ("sin(x)", "x=0:1.5707963267948966"),
        ("cos(x)", "x=-3.141592653589793:3.141592653589793"),
        ("sin(x), cos(x)", "x=-3.141592653589793:3.141592653589793"),
        ("sin(10*x)", "x=-1:1"),
        ("tan(x)", "x=-1:1"),
        ("arctan(x)", "x=-4:4"),
        ("sinh(x)", "x=-2:2"),
        ("cosh(x)", "x=-2:2"),
        ("tanh(x)", "x=-4:4"),
        ("sigmoid(x)", "x=-5:5"),
        ("softplus(x)", "x=-5:5"),
        ("gelu(x)", "x=-5:5"),
        ("x*sigmoid(x)", "x=-5:5"),
        ("erf(x)", "x=-3:3"),
        ("gaussian(x)", "x=-3:3"),
        ("j0(x)", "x=0:10"),
        ("relu(x)", "x=-1:1"),
        ("abs(x)", "x=-1:1"),
        ("clip(x, -0.5, 0.5)", "x=-1:1"),
        ("max(x, y)", "x=-1:1 y=-1:1"),
        ("max(a, b, c, d)", "a=-1:1 b=-1:1 c=-1:1 d=-1:1"),
        ("median(x, y, z)", "x=-1:1 y=-1:1 z=-1:1"),
    )
)
