"""What is said of models, and the search for an input that contradicts a certificate.

certificate.py, tables.py, data.py                   certificates, bills and plans in the terminal, and as JSON
plots.py, attention.py, pattern.py, *_plot*.py       pictures
falsify.py, points.py, sequences.py, kinks.py        search for an input beyond a certificate
told.py                                              a model told in words
exporting.py                                         folders for other tools
trusted.py                                           what must be trusted, counted
"""
