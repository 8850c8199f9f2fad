"""Table heads that approximate functions: the fewest reference tokens for an asked error.

    fit_program(programs, box, errors)                         one head for several programs of one or two variables
    fit_surfaces(surfaces, x_range, y_range, errors)           the same for vectorised Python functions of two variables

Keys and values are all free; what softmax is exactly, such as sigmoid and tanh, is found exactly. Errors of fits are
ESTIMATES, from dense evaluation in extended precision: proofs are the kernel's business.
"""

from headsmith.plan.fit.curve import Fit
from headsmith.plan.fit.program import fit_program
from headsmith.plan.fit.surface import fit_surfaces

__all__ = ["Fit", "fit_program", "fit_surfaces"]
