"""The trusted core: everything that must be right for the guarantee, and nothing else.

`facts` is what is known before a record is read, `questions` what may be asked and what one individual adds
to it, `cost` what that costs and whether it fits, `ledger` what was charged, `engine` reads, seals, bounds
and counts, `noise` draws, and the `door` joins them in one order: charge, read, draw, store. It imports
nothing of the rest of sfumato (docs/core.md).
"""

__version__ = "0.3.0"  # stands here alone: the package, its metadata and every certificate take it from here
