"""The version, in one place: the package, its metadata and every certificate take it from here."""

__version__ = "0.3.0"
