"""Signed anchors: one line, kept elsewhere, that shows later whether a ledger has only grown since.

The chain by itself shows edits. It does not show that its end was cut off or that all of it was written
anew, since hashes need no key. An anchor names an entry and its hash and is signed by the key of the
project; whoever has the line can ask whether the ledger still holds that entry, and prove whose it is.
"""

from __future__ import annotations

import base64
import os
import re
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sfumato.errors import LedgerError, VerificationFailed

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from sfumato.accounting.chain import History
    from sfumato.accounting.stores import Store

KEY_VARIABLE = "SFUMATO_LEDGER_KEY"
_NAME = "sfumato-anchor-1"
_FORM = re.compile(rf"{_NAME}:([1-9][0-9]{{0,17}}):([0-9a-f]{{64}}):([0-9a-f]{{64}}):([0-9a-f]{{128}})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    """That entry `sequence` of a ledger has the hash `head`, signed by the owner of `public_key`."""

    sequence: int
    head: str
    public_key: str
    signature: str

    def __str__(self) -> str:
        return f"{_NAME}:{self.sequence}:{self.head}:{self.public_key}:{self.signature}"

    def to_record(self) -> dict[str, object]:
        """The anchor as a plain record."""
        return {
            "sequence": self.sequence,
            "head": self.head,
            "public_key": self.public_key,
            "signature": self.signature,
            "anchor": str(self),
        }


def sign_anchor(*, sequence: int, head: str, key: Ed25519PrivateKey) -> Anchor:
    """The anchor of an entry, signed with `key`."""
    public = _public(key)
    signature = key.sign(_message(sequence, head, public)).hex()
    return Anchor(sequence=sequence, head=head, public_key=public, signature=signature)


def parse_anchor(text: str) -> Anchor:
    """The anchor that a line spells, its signature checked; anyone can do so."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    found = _FORM.fullmatch(text.strip())
    if found is None:
        raise VerificationFailed(
            f"that is no anchor; one is printed by `sfumato budget --anchor` and begins with {_NAME}:"
        )
    sequence, head, public, signature = found.groups()
    anchor = Anchor(sequence=int(sequence), head=head, public_key=public, signature=signature)
    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(public))
        key.verify(bytes.fromhex(signature), _message(anchor.sequence, head, public))
    except (InvalidSignature, ValueError):
        raise VerificationFailed(
            "the signature of the anchor is wrong: it was changed, or never signed"
        ) from None
    return anchor


def sign_last(history: History, store: Store, *, folder: Path | None) -> Anchor:
    """The anchor of the last entry; the key is made if the ledger was opened without one."""
    recorded = history.entries[0].description.get("public_key")
    path = find_key(store.place, folder=folder)
    key = None if path is None else read_key(path, create=recorded is None)
    if key is None or recorded not in (None, _public(key)):
        raise LedgerError(
            f"the key that ledger {store.name!r} was opened with is missing; restore the file "
            f"beside it from a backup, or name it in {KEY_VARIABLE}"
        )
    entry = history.entries[-1]
    return sign_anchor(sequence=entry.sequence, head=entry.hash, key=key)


def check_held(anchor: Anchor, history: History, store: Store, *, folder: Path | None) -> None:
    """Raises an error if the key of the ledger did not sign `anchor`, or its entry is not there."""
    known = history.entries[0].description.get("public_key")
    if known is None:
        path = find_key(store.place, folder=folder)
        key = None if path is None else read_key(path, create=False)
        known = None if key is None else _public(key)
    if known is None:
        raise VerificationFailed(
            f"ledger {store.name!r} has no key yet, so none of its anchors can be signed"
        )
    if anchor.public_key != known:
        raise VerificationFailed(f"the anchor is signed by another key than that of ledger {store.name!r}")
    entries = history.entries
    if anchor.sequence > len(entries) or entries[anchor.sequence - 1].hash != anchor.head:
        raise VerificationFailed(
            f"ledger {store.name!r} does not hold entry {anchor.sequence} as the anchor has it: an "
            "older copy was put back, its end was cut off, or it was written anew"
        )


def make_public_key(store: Store) -> str | None:
    """The public half of the key of a ledger that is about to be made, beside its file; None elsewhere."""
    place = store.place
    path = find_key(place)
    # Where no ledger can be made, that is what the error is about.
    possible = isinstance(place, Path) and place.parent.is_dir() and os.access(place.parent, os.W_OK)
    key = None if path is None else read_key(path, create=possible)
    return None if key is None else _public(key)


def find_key(place: Path | str, *, folder: Path | None = None) -> Path | None:
    """Where the key of the ledger at `place` is kept: `SFUMATO_LEDGER_KEY`, or a file beside it.

    Beside a ledger in a database means `ledger.key` in the project's `folder`; without one, nowhere.
    """
    if named := os.environ.get(KEY_VARIABLE):
        return Path(named)
    if isinstance(place, Path):
        return place.with_name(place.name + ".key")
    return None if folder is None else folder / "ledger.key"


def read_key(path: Path, *, create: bool) -> Ed25519PrivateKey | None:
    """The key in the file at `path`, made if it may be; None if it is not there and may not."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    try:
        if create and not path.exists():
            _write_key(path)
        text = path.read_text(encoding="ascii", errors="replace") if path.exists() else None
    except OSError as error:
        raise LedgerError(f"the key {path.name!r} cannot be read or made: {error.strerror}") from None
    if text is None:
        return None
    try:
        return Ed25519PrivateKey.from_private_bytes(base64.b64decode(text.strip(), validate=True))
    except ValueError:
        raise LedgerError(f"{path.name!r} is not the key of a ledger; restore it from a backup") from None


def _public(key: Ed25519PrivateKey) -> str:
    return key.public_key().public_bytes_raw().hex()


def _write_key(path: Path) -> None:
    """A new key, whole from its first instant; one that another process has just made is left."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}.new")
    descriptor = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(base64.b64encode(secrets.token_bytes(32)) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        os.link(draft, path)
    except FileExistsError:
        pass
    finally:
        draft.unlink(missing_ok=True)


def _message(sequence: int, head: str, public: str) -> bytes:
    return f"{_NAME}\n{sequence}\n{head}\n{public}\n".encode()
