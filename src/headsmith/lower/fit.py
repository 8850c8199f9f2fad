"""Table heads that approximate functions: the fewest reference tokens for an asked error.

    fit([("sin", None), ("cos", None)], low, high, error)      one head for several functions of one variable
    fit_product(left, right, x_range, y_range, error)          one head for f(x) g(y), its tokens pairs of tokens
    fit_bivariate(function, x_range, y_range, error)           one head for any smooth function of two variables

Keys and values are all free; sigmoid and tanh are softmax over two tokens exactly. Errors of fits are ESTIMATES, from
dense evaluation in extended precision: proofs are the kernel's business.
"""

from headsmith.lower.fit_curve import Fit, fit
from headsmith.lower.fit_surface import fit_bivariate, fit_product

__all__ = ["Fit", "fit", "fit_bivariate", "fit_product"]
