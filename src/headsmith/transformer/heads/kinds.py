"""The kinds of banks, by name. A new kind is one file beside this one, and one line here."""

from __future__ import annotations

from headsmith.transformer.heads.attend import AttendBank
from headsmith.transformer.heads.bank import HeadBank
from headsmith.transformer.heads.boltzmann import BoltzmannBank
from headsmith.transformer.heads.gate import GateBank
from headsmith.transformer.heads.mean import MeanBank
from headsmith.transformer.heads.move import MoveBank
from headsmith.transformer.heads.product import ProductBank
from headsmith.transformer.heads.sink import SinkBank
from headsmith.transformer.heads.swiglu import SiluBank, SwigluBank
from headsmith.transformer.heads.table import TableBank

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
