"""The proof checker: it reads a model file, checks its proof by local rules, and believes nobody.

This folder stands alone: it needs numpy, python-flint and safetensors, and can be copied out of the project.
`python -m kernel model.safetensors` checks a file.
"""

from .core.errors import Refused

__all__ = ["Refused"]
