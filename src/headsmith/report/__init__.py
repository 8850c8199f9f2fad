"""What is said of models, and what tries to refute it.

certificate.py, tables.py, markup.py, data.py    certificates, bills and plans in the terminal, in LaTeX, as JSON
plots.py, attention.py, pattern.py               pictures
claims.py, *_claims.py, papers.py                the published results, each checked by running it
falsify.py, points.py, kinks.py, inputs.py       search for an input beyond a certificate
selftest.py, file_attack.py, mutations.py        the same for models and files that are made up at random
target_oracle.py, rounding_oracle.py             what is true, in high precision, and the worst that rounding can do
exporting.py                                     folders for other tools
trusted.py                                       what must be trusted, counted
"""
