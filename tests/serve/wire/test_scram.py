"""The login, against the vectors of RFC 7677 and against what an attacker might send."""

import base64
import hashlib
import hmac

import pytest

from helpers.wire import make_certificate
from sfumato.serve.state import make_verifier
from sfumato.serve.wire.messages import Refusal
from sfumato.serve.wire.server import MECHANISM, MECHANISM_PLUS, Exchange, hash_certificate, load_certificate

SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
VERIFIER = make_verifier("pencil", salt=SALT, iterations=4096)


def begin(first, *, mechanism=MECHANISM, binding=None, nonce="%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"):
    exchange = Exchange(VERIFIER, mechanism=mechanism, binding=binding, nonce=nonce)
    return exchange, exchange.begin(first)


def test_the_vectors_of_rfc_7677():
    exchange, first = begin(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    assert first == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    last = exchange.finish(
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert last == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def prove(first, header, *, password="pencil", binding=b""):
    """The client's last message, after the server's first."""
    bare = f"c={base64.b64encode(header + binding).decode()},{first.decode().split(',')[0]}"
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), SALT, 4096)
    key = hmac.digest(salted, b"Client Key", "sha256")
    words = f"n=,r=abc,{first.decode()},{bare}".encode()
    signature = hmac.digest(hashlib.sha256(key).digest(), words, "sha256")
    proof = bytes(left ^ right for left, right in zip(key, signature, strict=True))
    return f"{bare},p={base64.b64encode(proof).decode()}".encode()


def test_a_login_is_bound_to_the_certificate():
    header = b"p=tls-server-end-point,,"
    for binding, fits in ((b"mine", True), (b"theirs", False)):
        exchange, first = begin(header + b"n=,r=abc", mechanism=MECHANISM_PLUS, binding=b"mine")
        if fits:
            assert exchange.finish(prove(first, header, binding=binding))
        else:
            with pytest.raises(Refusal):
                exchange.finish(prove(first, header, binding=binding))


def test_a_wrong_password_is_told_from_a_malformed_one():
    exchange, first = begin(b"n,,n=,r=abc")
    assert exchange.finish(prove(first, b"n,,", password="crayon")) is None
    for last in (
        b"",
        b"c=biws",
        b"c=biws,r=abc,p=",
        prove(first, b"y,,"),
        prove(first, b"n,,")[:-9] + b"=",
        b"\xff",
    ):
        exchange, first = begin(b"n,,n=,r=abc")
        with pytest.raises(Refusal):
            exchange.finish(last)


@pytest.mark.parametrize(
    ("first", "mechanism", "binding"),
    [
        (b"", MECHANISM, None),
        (b"n,,", MECHANISM, None),
        (b"n,,n=,r=", MECHANISM, None),
        (b"n,a=root,n=,r=abc", MECHANISM, None),
        (b"n,,m=x,n=,r=abc", MECHANISM, None),
        (b"p=tls-server-end-point,,n=,r=abc", MECHANISM, b"mine"),
        (b"p=tls-unique,,n=,r=abc", MECHANISM_PLUS, b"mine"),
        (b"n,,n=,r=abc", MECHANISM_PLUS, b"mine"),
        # The client could bind, and someone on the way removed our offer.
        (b"y,,n=,r=abc", MECHANISM, b"mine"),
        (b"\xff\xfe", MECHANISM, None),
    ],
)
def test_what_does_not_follow_is_refused(first, mechanism, binding):
    with pytest.raises(Refusal):
        begin(first, mechanism=mechanism, binding=binding)


def test_the_certificate_is_hashed_as_its_signature_is(tmp_path):
    from cryptography.hazmat.primitives import hashes

    for algorithm, name in ((hashes.SHA256(), "sha256"), (hashes.SHA384(), "sha384")):
        certificate, _ = make_certificate(tmp_path, algorithm=algorithm)
        der = load_certificate(certificate.read_text())
        assert hash_certificate(der) == hashlib.new(name, der).digest()
