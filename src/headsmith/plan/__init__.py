"""Search, and what is known before a model is laid out: ranges, designs, circuits, fits; `hs.plan` is in rows.py.

Nothing here is trusted: the kernel checks whatever comes out.
"""
