"""The truth, from code that shares nothing with the package: fractions, fifty digits, plain loops."""
