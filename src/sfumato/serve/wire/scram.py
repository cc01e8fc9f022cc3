"""SCRAM-SHA-256 (RFC 5802, RFC 7677) at the server, with channel binding to its certificate (RFC 5929)."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from typing import TYPE_CHECKING

from cryptography import x509

from sfumato.serve.wire.messages import Refusal

if TYPE_CHECKING:
    from sfumato.serve.state import Verifier

MECHANISM = "SCRAM-SHA-256"
MECHANISM_PLUS = "SCRAM-SHA-256-PLUS"
_BINDING = "tls-server-end-point"


def hash_certificate(certificate: bytes) -> bytes | None:
    """What binds a login to the TLS session: the digest of the server's certificate (DER).

    It uses the hash of the certificate's own signature, but never MD5 or SHA-1; None where the signature
    has none (Ed25519), for which no binding is defined.
    """
    algorithm = x509.load_der_x509_certificate(certificate).signature_hash_algorithm
    if algorithm is None:
        return None
    name = "sha256" if algorithm.name in ("md5", "sha1") else algorithm.name
    return hashlib.new(name, certificate).digest()


class Exchange:
    """One login: two messages of the client, two answers.

    `verifier` is that of the user who wants in, a made-up one if there is no such user; `mechanism` the one
    that the client has chosen. `binding` is the digest of the certificate, or None if channel binding was not
    offered, `nonce` the server's part of the nonce, drawn where it is not given.
    """

    def __init__(
        self, verifier: Verifier, *, mechanism: str, binding: bytes | None, nonce: str | None = None
    ) -> None:
        self._verifier = verifier
        self._plus = mechanism == MECHANISM_PLUS
        self._binding = binding
        self._nonce = nonce or secrets.token_urlsafe(18)
        self._header = ""
        self._said: list[str] = []

    def begin(self, data: bytes) -> bytes:
        """The answer to the client's first message: the whole nonce, the salt and the iterations."""
        flag, _, rest = _text(data).partition(",")
        identity, _, bare = rest.partition(",")
        # "y" says: I could bind, but you did not offer it. If we did, someone took the offer away.
        unbound = flag == "n" or (flag == "y" and self._binding is None)
        fits = flag == f"p={_BINDING}" if self._plus else unbound
        parts = bare.split(",")
        if not fits or identity or len(parts) < 2 or parts[0][:2] != "n=" or parts[1][:2] != "r=":
            raise _malformed()
        self._header = f"{flag},{identity},"
        if not parts[1][2:]:
            raise _malformed()
        self._nonce = parts[1][2:] + self._nonce
        salt = base64.b64encode(self._verifier.salt).decode()
        first = f"r={self._nonce},s={salt},i={self._verifier.iterations}"
        self._said = [bare, first]
        return first.encode()

    def finish(self, data: bytes) -> bytes | None:
        """The answer to the client's proof: the server's own, or None if the password is wrong."""
        bare, _, proof = _text(data).rpartition(",p=")
        fields = dict(part.split("=", 1) for part in bare.split(",") if "=" in part)
        channel = self._header.encode() + ((self._binding or b"") if self._plus else b"")
        if fields.get("r") != self._nonce:
            raise _malformed()
        if not hmac.compare_digest(_unbase64(fields.get("c", "")), channel):
            raise Refusal("28000", "the login is not bound to this TLS session", fatal=True)
        words = ",".join([*self._said, bare]).encode()
        signature = hmac.digest(self._verifier.stored_key, words, "sha256")
        given = _unbase64(proof)
        if len(given) != len(signature):
            raise _malformed()
        key = bytes(left ^ right for left, right in zip(given, signature, strict=True))
        if not hmac.compare_digest(hashlib.sha256(key).digest(), self._verifier.stored_key):
            return None
        return b"v=" + base64.b64encode(hmac.digest(self._verifier.server_key, words, "sha256"))


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise _malformed() from None


def _unbase64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise _malformed() from None


def _malformed() -> Refusal:
    return Refusal("08P01", "the login does not follow SCRAM-SHA-256", fatal=True)
