"""A released model asked in SQL: aggregates at no cost, from what is public already. Sees no record."""

from sfumato.release.ask.answer import ReleasedModel, can_ask, open_model, read_model

__all__ = ["ReleasedModel", "can_ask", "open_model", "read_model"]
