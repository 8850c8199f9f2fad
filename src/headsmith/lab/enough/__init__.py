"""How much is enough: the most accurate model within limits, laws for all errors of a range, and lower bounds.

    best(target, domain, heads=, reference_tokens=, max_weight=, ...)     best.py, on heads.py and evolve.py
    frontier(target, domain, ...)                                         frontier.py
    law(target, domain, ...)                                              law.py
    lower_bound(target, domain, reference_tokens=, ...)                   bounds.py; kernel/rules/lower_bound.py checks

Upper figures are certified models, lower ones proofs that no head of a shape can do better; what lies between them is
not known, and is printed as a gap.
"""
