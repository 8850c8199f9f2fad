"""Which slot executes which operation at which step: as late as possible, so that little has to be remembered.

An operation comes after those that it needs. At most `slots` of them share a step, the last ones take the last step,
and a result is at hand for `window` more steps than the next one. The same question is thus answered in few steps of
many slots, or in many steps of one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headsmith.core.errors import DomainError
from headsmith.lab.iprm.questions import Question, QuestionStep, operations


@dataclass(frozen=True)
class Seat:
    """A slot and a step; both count from 0."""

    slot: int
    step: int


def schedule(questions: Sequence[Question], slots: int, steps: int, window: int) -> Mapping[QuestionStep, Seat]:
    """A seat for every operation, or DomainError saying which number is too small."""
    ordered = [operation for question in questions for operation in operations(question)]
    reader = {part: operation for operation in ordered for part in operation.parts.values()}
    seats: dict[QuestionStep, Seat] = {}
    step = steps
    while len(seats) < len(ordered):
        step -= 1
        ready = [
            operation
            for operation in ordered
            if operation not in seats and (operation not in reader or _later(seats, reader[operation], step))
        ]
        # What needs most steps before it comes first; the order of the text decides among equals.
        ready.sort(key=lambda operation: -operation.depth)
        for slot, operation in enumerate(ready[:slots]):
            seats[operation] = Seat(slot, step)
    text = "; ".join(question.text for question in questions)
    if step < 0:
        raise DomainError(
            f"{text!r} has {len(ordered)} operations and takes {steps - step} steps of {slots} slots; this module has "
            f"{steps} steps: build it with more steps or slots"
        )
    longest = max(
        (seats[reader[operation]].step if operation in reader else steps) - seat.step - 1
        for operation, seat in seats.items()
    )
    if longest > window:
        raise DomainError(
            f"{text!r} needs a result {longest} steps after the next one, and the window is {window}: build the "
            f"module with window={longest}, or with more slots"
        )
    return seats


def _later(seats: Mapping[QuestionStep, Seat], operation: QuestionStep, step: int) -> bool:
    return operation in seats and seats[operation].step > step
