"""Reasoning in steps and slots: the same question, answered by three slots in one step, or by one slot in three.

Operations are formed from the question, executed on the scene and composed, by attention between tokens alone. The
answer is exact, because the proven error is below half the distance of what an output can stand for.
"""

import numpy as np
from show import show

import headsmith as hs

random = np.random.default_rng(0)
question, colours = "most of red, green, blue", ["red", "green", "blue"]
parallel = hs.iprm(slots=3, steps=1, task="count", objects=8)
iterative = hs.iprm(slots=1, steps=3, window=2, task="count", objects=8)
for name, module in (("three slots, one step", parallel), ("one slot, three steps", iterative)):
    print(f"{name}: {module.bill.layers} layers, {module.bill.heads} heads, certified {module.certificate.error:.1e}")
    for operation, slot, step in module.seats(question):
        print(f"    {operation:5}  slot {slot}, step {step}")

asked = right = 0
while asked < 50:
    scene = [{"colour": str(colour)} for colour in random.choice(colours, 8)]
    counts = [sum(thing["colour"] == colour for thing in scene) for colour in colours]
    if counts.count(max(counts)) == 1:
        asked += 1
        wanted = colours[int(np.argmax(counts))]
        right += parallel.answer(question, scene) == wanted == iterative.answer(question, scene)
print(f"{right} of {asked} random scenes answered correctly by both")
assert right == asked

module = hs.iprm(slots=2, steps=2, task="scene")
scene = [
    {"colour": "red", "shape": "ball", "position": 0},
    {"colour": "green", "shape": "cube", "position": 3},
    {"colour": "blue", "shape": "cone", "position": 1},
]
for question in ("count red left of the cube", "more red left of the cube than green", "colour of the cone"):
    print(f"{question}: {module.answer(question, scene)}")
tokens = module.encode("count red left of the cube", scene)
off = np.abs(module(tokens) - module.target(tokens, np.longdouble)).max()
print(f"worst error found: {off:.1e}")
assert off <= module.certificate.error
show(module)
