"""Iterative and parallel reasoning over tokens: a program of our own, compiled, and the same module to be trained.

The idea is that of a published reasoning module (operations are formed from a question, executed on a scene and
composed, in several slots at once and for several steps with the same weights). Its equations are not at hand: every
construction in this package is ours.

    vocabulary.py   what objects show, and what an operation may ask for
    questions.py    text to a tree of operations; the answer in plain Python
    schedule.py     which slot executes which operation at which step
    layout.py       question, scene and memory as the tokens of one sequence
    graph.py        formation, composition, execution: the program itself
    decode.py       when rounding what the model returns gives the exact answer, as a theorem
    model.py        `hs.iprm`: the compiled and certified module
    trained.py      the same module in torch, trained
    draw.py         where both look, step by step
"""

from headsmith.lab.iprm.model import Reasoner, iprm, reasoner_of

__all__ = ["Reasoner", "iprm", "reasoner_of"]
