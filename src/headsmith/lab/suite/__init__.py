"""The suite of ground truth: transformers whose circuits are proven, in four levels of disguise, on which methods of
interpretability are scored. `make` writes it, `load` and `show` read it, `verify` proves it again, `score` marks what a
method has found, `baselines` runs the usual methods."""

from headsmith.lab.suite.families import FAMILIES as FAMILIES
from headsmith.lab.suite.folder import Folder as Folder
from headsmith.lab.suite.making import load as load
from headsmith.lab.suite.making import make as make
from headsmith.lab.suite.making import verify as verify
from headsmith.lab.suite.scorer import score as score

__all__ = ["FAMILIES", "Folder", "load", "make", "score", "verify"]
