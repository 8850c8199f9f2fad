"""Signal propagation: how activations and gradients grow through deep transformers, in theory and measured.

hs.signal.apjn("derf", alpha=1, depth=64)            the recurrences: q, p and J block by block
hs.signal.measure(norm="derf", alpha=1, depth=12)    the same on random transformers, with standard errors
hs.signal.measure(model)                             the gains of a compiled model: average and certified
hs.signal.residual("derf", alpha=1)                  the smallest network of that kind
hs.signal.draw_figures(folder)                       the figures of the literature
"""

from headsmith.lab.signal.draw import draw_figures, draw_measured, draw_residual
from headsmith.lab.signal.estimate import Measured
from headsmith.lab.signal.gain import Gains
from headsmith.lab.signal.measure import measure
from headsmith.lab.signal.residual import Residual, residual
from headsmith.lab.signal.theory import Propagation, Settings, apjn

__all__ = [
    "Gains",
    "Measured",
    "Propagation",
    "Residual",
    "Settings",
    "apjn",
    "draw_figures",
    "draw_measured",
    "draw_residual",
    "measure",
    "residual",
]
