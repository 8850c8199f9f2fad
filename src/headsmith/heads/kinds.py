"""The kinds of banks, by name. A new kind is one file beside this one, and one line here."""

from __future__ import annotations

from headsmith.heads.attend import AttendBank
from headsmith.heads.bank import HeadBank
from headsmith.heads.boltzmann import BoltzmannBank
from headsmith.heads.gate import GateBank
from headsmith.heads.mean import MeanBank
from headsmith.heads.move import MoveBank
from headsmith.heads.product import ProductBank
from headsmith.heads.sink import SinkBank
from headsmith.heads.swiglu import SiluBank, SwigluBank
from headsmith.heads.table import TableBank

KINDS: dict[str, type[HeadBank]] = {
    bank.kind: bank
    for bank in (
        SinkBank,
        TableBank,
        GateBank,
        MeanBank,
        BoltzmannBank,
        MoveBank,
        AttendBank,
        ProductBank,
        SwigluBank,
        SiluBank,
    )
}
