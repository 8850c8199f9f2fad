"""What each kind of bank must look like before anybody runs it: one function a kind, each raises CertificateError."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.errors import CertificateError
from headsmith.heads.attend import AttendBank
from headsmith.heads.boltzmann import BoltzmannBank
from headsmith.heads.gate import GateBank
from headsmith.heads.mean import MeanBank
from headsmith.heads.move import MoveBank, targets
from headsmith.heads.stream import GRID, position_bits
from headsmith.heads.table import TableBank


@dataclass(frozen=True, eq=False)
class Surroundings:
    """What a bank finds in its model."""

    tokens: int
    sizes: Mapping[str, int]
    positional: Mapping[str, Array]


def check_table(bank: TableBank, around: Surroundings, where: str) -> None:
    """One row of the table for each token of the grid, an argument or more, a column or more."""
    dimensions = (bank.slope.ndim, bank.offset.ndim, bank.values.ndim)
    if dimensions != (3, 2, 3) or not bank.slope.shape[2] or bank.values.shape[2] < 1:
        raise CertificateError(f"{where}: the table has slopes {bank.slope.shape}, values {bank.values.shape}")
    tokens, kind = around.sizes.get(bank.grid, 0), "reference"
    if bank.grid != GRID:
        kind = "data"
        rows = around.positional.get(bank.grid)
        if rows is None or not np.array_equal(rows, np.eye(around.tokens)):
            raise CertificateError(f"{where}: the grid {bank.grid} is no positional register that tells tokens apart")
    expected = (len(bank.offset), tokens)
    if tokens < 1 or any(array.shape[:2] != expected for array in (bank.slope, bank.offset, bank.values)):
        raise CertificateError(f"{where}: the table does not fit {tokens} {kind} tokens")


def check_scales(bank: BoltzmannBank, where: str) -> None:
    """One scale for each head, none of them zero."""
    for values in (bank.query_scale, bank.key_scale):
        if values.shape != bank.query_scale.shape or values.ndim != 1:
            raise CertificateError(f"{where}: scales of shapes {bank.query_scale.shape} and {bank.key_scale.shape}")
        if not np.all(values != 0.0):
            raise CertificateError(f"{where}: a head with scale zero returns a mean, not an extreme; use a mean head")


def check_vector(bank: MeanBank | MoveBank | AttendBank, where: str) -> None:
    """At least one output, in a row."""
    if bank.node.ndim != 1 or bank.outputs == 0 or bank.heads < 1 or bank.outputs % bank.heads:
        raise CertificateError(f"{where}: outputs of shape {bank.node.shape} for {bank.heads} heads")


def check_attend(bank: AttendBank, where: str) -> None:
    """Queries and keys of one number or more, all of which are read."""
    check_vector(bank, where)
    last = max((link.first + link.rows for link in bank.read), default=0)
    if bank.width < 1 or last != bank.readers:
        raise CertificateError(
            f"{where}: queries and keys of {bank.width} numbers, and {bank.outputs} values, do not fit {last} reads"
        )


def check_move(bank: MoveBank, around: Surroundings, where: str) -> None:
    """The address is a positional register whose rows are position codes, or say: nothing."""
    check_vector(bank, where)
    if around.tokens < 2:
        raise CertificateError(f"{where}: a single data token has nobody to fetch from")
    if isinstance(bank.address, int):
        if not 0 <= bank.address < around.tokens:
            raise CertificateError(f"{where}: token {bank.address} is not one of {around.tokens} tokens")
        return
    address = around.positional.get(bank.address)
    if address is None or address.shape != (around.tokens, position_bits(around.tokens) + 1):
        raise CertificateError(
            f"{where}: the address {bank.address} must be a positional register of {position_bits(around.tokens)} + 1"
            " columns"
        )
    wrong = np.flatnonzero(targets(address, around.tokens) < -1)
    if len(wrong):
        raise CertificateError(f"{where}: row {int(wrong[0])} of {bank.address} is the address of no token")


def check_gate(bank: GateBank, around: Surroundings, where: str) -> None:
    """One slope and one offset for each head and reference token of the grid."""
    tokens = around.sizes.get(GRID, 0)
    if bank.offset.ndim != 2 or bank.slope.shape != bank.offset.shape or bank.offset.shape[1] != tokens or tokens < 1:
        raise CertificateError(
            f"{where}: slopes {bank.slope.shape} and offsets {bank.offset.shape} do not fit {tokens} reference tokens"
        )
