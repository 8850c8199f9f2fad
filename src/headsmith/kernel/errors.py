"""Why a file is not certified, in one sentence."""


class Refused(Exception):
    """The file is damaged, or its proof does not prove its claim."""


class ThinMargin(Refused):
    """Something is read that may be further off than the proof allows for."""


class NoHead(Refused):
    """A gate that may cross zero, as far as ranges know, has no head."""
