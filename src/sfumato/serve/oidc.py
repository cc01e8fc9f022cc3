"""Sign-in by OpenID Connect: the authorisation code flow with PKCE, beside local accounts.

What a browser brings back is worth nothing by itself: the provider is asked for the ID token, and its
signature, issuer, audience, times and nonce are checked here (OpenID Connect Core 1.0, section 3.1.3.7). A
person is known by the provider's `sub`, never by a name, so nobody enters a local account that is called so.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import ipaddress
import json
import secrets
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args
from urllib.parse import quote, urlencode, urlsplit

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa, utils

from sfumato.core.errors import AccessDenied, SchemaError
from sfumato.core.exact import parse_positive
from sfumato.core.facts.column import refuse_unknown_keys
from sfumato.serve.state import Role, State

if TYPE_CHECKING:
    from sfumato.curator import Curator

CALLBACK = "/oidc/callback"
SECONDS = 600  # that a person has between leaving for the provider and coming back

_WAIT = 10.0  # seconds for each reply of the provider
_MOST = 2**20  # bytes of one
_KEEP = 300.0  # seconds after which addresses and keys of the provider are read again
_SLACK = 60  # seconds that two clocks may differ
_RANKS: tuple[str, ...] = get_args(Role)  # the one that may most comes first


@dataclass(frozen=True, slots=True, kw_only=True)
class Oidc:
    """`[serve.oidc]`: who says who people are, and what their groups may do.

    `redirect_uri` is where the provider sends people back, as it is registered there. A session ends after
    `session_hours`; a token or password made on the page works for `token_days` after the last sign-in.
    """

    issuer: str
    client_id: str
    redirect_uri: str
    client_secret_file: str | None = None
    scope: str = "openid profile"
    name_claim: str = "preferred_username"
    groups_claim: str = "groups"
    session_hours: Fraction = Fraction(4)
    token_days: Fraction = Fraction(7)
    groups: Mapping[str, tuple[str, Fraction | None]] = field(default_factory=dict)


def read_oidc(section: object, *, base: str = "") -> Oidc:
    """Returns the settings in `section` of the project file, whose pages stand at `base`."""
    if not isinstance(section, dict):
        raise SchemaError("[serve.oidc] is a section with issuer, client_id, redirect_uri and groups")
    refuse_unknown_keys(section, tuple(each.name for each in fields(Oidc)), where="[serve.oidc]")
    known = dict(section)
    for key in ("session_hours", "token_days"):
        if key in known:
            known[key] = parse_positive(known[key], name=f"[serve.oidc] {key}")
    groups = known.pop("groups", None)
    if not isinstance(groups, dict) or not groups:
        raise SchemaError("[serve.oidc] groups says what each group may do, such as {stewards = 'steward'}")
    for key in ("issuer", "client_id", "redirect_uri", *(known.keys() - {"session_hours", "token_days"})):
        if not isinstance(known.get(key), str) or not known[key]:
            raise SchemaError(f"[serve.oidc] {key} is a text")
    for key in ("issuer", "redirect_uri"):
        if not is_safe(known[key]):
            raise SchemaError(f"[serve.oidc] {key} begins with https://, but on this machine")
    if urlsplit(known["redirect_uri"]).path != base + CALLBACK:
        raise SchemaError(f"[serve.oidc] redirect_uri is the address of this server with {base}{CALLBACK}")
    return Oidc(**known, groups={name: _read_group(name, each) for name, each in groups.items()})


def _read_group(name: str, given: object) -> tuple[str, Fraction | None]:
    rights = {"role": given} if isinstance(given, str) else given
    where = f"[serve.oidc] groups, {name!r}"
    if not isinstance(rights, dict) or rights.get("role") not in _RANKS:
        raise SchemaError(f"{where}: a role is one of {', '.join(_RANKS)}")
    refuse_unknown_keys(rights, ("role", "share"), where=where)
    if (rights["role"] == "analyst") != ("share" in rights):
        raise SchemaError(f"{where}: analysts, and nobody else, have a share: the most epsilon of each")
    share = rights.get("share")
    return rights["role"], None if share is None else parse_positive(share, name=f"{where}, share")


class SignIn:
    """Signs people in whom the provider of `settings` vouches for; everything here may wait for it."""

    def __init__(self, settings: Oidc, state: State, curator: Curator) -> None:
        self.settings = settings
        self._state = state
        self._curator = curator
        self._opener = urllib.request.build_opener(NoRedirect)
        self._facts: dict[str, Any] = {}
        self._keys: list[Any] = []
        self._read_at = -_KEEP

    def begin(self, onward: str) -> tuple[str, str]:
        """Returns the provider's address for one sign-in, and what the browser keeps until it is back."""
        self._read_provider()
        secret = secrets.token_urlsafe(32)
        kept = f"{secret}.{int(time.time())}.{_encode(onward.encode())}"
        asked = {
            "response_type": "code",
            "client_id": self.settings.client_id,
            "redirect_uri": self.settings.redirect_uri,
            "scope": self.settings.scope,
            "state": _derive(secret, "state"),
            "nonce": _derive(secret, "nonce"),
            "code_challenge": _encode(hashlib.sha256(_derive(secret, "verifier").encode()).digest()),
            "code_challenge_method": "S256",
        }
        address = self._facts["authorization_endpoint"]
        return f"{address}{'&' if '?' in address else '?'}{urlencode(asked)}", self._state.sign(kept)

    def finish(self, kept: str, given: Mapping[str, str]) -> tuple[str, str, str]:
        """Returns who came back, the secret of their session, and where they were going.

        `kept` is what their browser kept and `given` what the provider sent with them. Each sign-in is
        finished once, whether it succeeds or not.
        """
        secret, begun, onward = (*(self._state.read_signed(kept) or "").split("."), "", "")[:3]
        if not secret or not 0 <= time.time() - int(begun) <= SECONDS:
            raise AccessDenied("this sign-in is too old, or was begun in another browser")
        if not hmac.compare_digest(given.get("state", "").encode(), _derive(secret, "state").encode()):
            raise AccessDenied("the reply belongs to another sign-in")
        if not self._state.use_once(secret, seconds=2 * SECONDS):
            raise AccessDenied("this sign-in was used already")
        self._read_provider()
        named = bool(self._facts.get("authorization_response_iss_parameter_supported"))  # RFC 9207
        if given.get("iss", None if named else self.settings.issuer) != self.settings.issuer:
            raise AccessDenied("the reply is of another issuer")
        if "error" in given or not given.get("code"):
            raise AccessDenied("the provider let nobody in")
        token = self._redeem(given["code"], _derive(secret, "verifier"))
        try:
            claims = verify_token(token, self._keys, self.settings, nonce=_derive(secret, "nonce"))
        except LookupError:  # the provider has new keys
            self._read_provider(again=True)
            try:
                claims = verify_token(token, self._keys, self.settings, nonce=_derive(secret, "nonce"))
            except LookupError:
                raise AccessDenied(
                    "the ID token is signed with a key that the provider does not have"
                ) from None
        name = self._enter(claims)
        session = self._state.open_session(name, seconds=float(3600 * self.settings.session_hours))
        return name, session, base64.urlsafe_b64decode(onward + "==").decode()

    def _enter(self, claims: Mapping[str, Any]) -> str:
        """Gives the person of `claims` what their groups may do, and returns their name here."""
        subject = json.dumps([self.settings.issuer, claims["sub"]])
        groups = claims.get(self.settings.groups_claim, ())
        groups = groups if isinstance(groups, list) else [groups]
        rights = [
            self.settings.groups[each]
            for each in groups
            if isinstance(each, str) and each in self.settings.groups
        ]
        name, before = self._state.find_subject(subject) or ("", "")
        if not rights:
            if name:
                self._state.end_person(name)
            raise AccessDenied("none of your groups may enter")
        role, share = min(rights, key=lambda each: (_RANKS.index(each[0]), -(each[1] or 0)))
        if not name:
            name = str(claims.get(self.settings.name_claim, ""))
            # May nothing until the ledger has their share; fails if somebody else is called so.
            self._state.add_user(name, "viewer", subject=subject)
        given = f"{role} {share}"
        # Who looks after people may have changed the share; it stays until the groups give another one.
        if given != before and role != "viewer":
            self._state.end_person(name)
            self._curator.set_share(name, share)
        self._state.renew_person(name, role, given=given, seconds=float(86400 * self.settings.token_days))
        return name

    def _redeem(self, code: str, verifier: str) -> str:
        """Returns the ID token that the provider gives for `code`."""
        sent = {"grant_type": "authorization_code", "code": code, "code_verifier": verifier}
        sent |= {"redirect_uri": self.settings.redirect_uri, "client_id": self.settings.client_id}
        headers = {"Accept": "application/json", "Content-Type": "application/x-www-form-urlencoded"}
        if self.settings.client_secret_file is not None:
            secret = _read_secret(self._curator.project.folder / self.settings.client_secret_file)
            if "client_secret_basic" in self._facts.get(
                "token_endpoint_auth_methods_supported", ["client_secret_basic"]
            ):
                pair = f"{quote(self.settings.client_id, safe='')}:{quote(secret, safe='')}"
                headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
            else:
                sent["client_secret"] = secret
        reply = self._fetch(self._facts["token_endpoint"], urlencode(sent).encode(), headers)
        if not isinstance(reply.get("id_token"), str):
            raise AccessDenied("the provider gave no ID token")
        return str(reply["id_token"])

    def _read_provider(self, *, again: bool = False) -> None:
        if time.monotonic() - self._read_at < _KEEP and not again:
            return
        base = self.settings.issuer
        facts = self._fetch(f"{base.removesuffix('/')}/.well-known/openid-configuration")
        needed = ("authorization_endpoint", "token_endpoint", "jwks_uri")
        if facts.get("issuer") != base or not all(is_safe(facts.get(key), of=base) for key in needed):
            raise AccessDenied("the discovery document is not that of the issuer")
        keys = self._fetch(facts["jwks_uri"]).get("keys")
        self._facts, self._keys = facts, keys if isinstance(keys, list) else []
        self._read_at = time.monotonic()

    def _fetch(
        self, address: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """Returns the JSON object at `address`; a reply that leads elsewhere is none."""
        request = urllib.request.Request(address, body, dict(headers or {}))
        try:
            with self._opener.open(request, timeout=_WAIT) as reply:
                found = json.loads(reply.read(_MOST))
        except urllib.error.HTTPError as error:
            error.close()
            raise AccessDenied("the provider refused this sign-in") from None
        except (OSError, http.client.HTTPException, ValueError, RecursionError):
            raise AccessDenied("the provider cannot be reached now") from None
        if not isinstance(found, dict):
            raise AccessDenied("the provider's reply cannot be read")
        return found


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows nothing: an address that was not looked at could be anywhere."""

    def redirect_request(self, *_: object, **__: object) -> None:
        """Returns no request."""


def verify_token(token: str, keys: list[Any], settings: Oidc, *, nonce: str) -> dict[str, Any]:
    """Returns the claims of an ID token that is the provider's own, for this server and this sign-in.

    Raises LookupError if none of `keys` is called as the token says.
    """
    try:
        head, body, signature = token.split(".")
        header, claims = json.loads(_decode(head)), json.loads(_decode(body))
        signed = _decode(signature)
    except (ValueError, RecursionError):
        raise AccessDenied("the ID token cannot be read") from None
    if not isinstance(header, dict) or not isinstance(claims, dict) or "crit" in header:
        raise AccessDenied("the ID token cannot be read")
    # None of the algorithms that need no key, or one that both sides know.
    if header.get("alg") not in ("RS256", "ES256"):
        raise AccessDenied("the ID token is not signed with RS256 or ES256")
    try:
        _check_signature(f"{head}.{body}".encode(), signed, _choose_key(header, keys), header["alg"])
    except (InvalidSignature, ValueError, TypeError, KeyError, AttributeError):
        raise AccessDenied("the signature of the ID token is wrong") from None
    now, times = time.time(), [claims.get("exp"), claims.get("iat"), claims.get("nbf", 0)]
    if not all(type(each) in (int, float) for each in times):
        raise AccessDenied("the ID token has no times")
    ends, made, begins = times
    audience = claims.get("aud")
    audiences = audience if isinstance(audience, list) else [audience]
    party = claims.get("azp", settings.client_id if len(audiences) == 1 else None)
    said = str(claims.get("nonce")).encode("utf-8", "replace")
    problems = {
        "of another issuer": claims.get("iss") != settings.issuer,
        "for another audience": settings.client_id not in audiences or party != settings.client_id,
        "too old": not ends > now - _SLACK,
        "not valid yet": not (made <= now + _SLACK and begins <= now + _SLACK),
        "of another sign-in": not hmac.compare_digest(said, nonce.encode()),
        "of nobody": not isinstance(claims.get("sub"), str) or not 0 < len(claims["sub"]) < 256,
    }
    for problem, there in problems.items():
        if there:
            raise AccessDenied(f"the ID token is {problem}")
    return claims


def _choose_key(header: Mapping[str, Any], keys: list[Any]) -> dict[str, Any]:
    kind = {"RS256": "RSA", "ES256": "EC"}[header["alg"]]
    fitting = [
        key
        for key in keys
        if isinstance(key, dict)
        and key.get("kty") == kind
        and key.get("use", "sig") == "sig"
        and key.get("alg", header["alg"]) == header["alg"]
        and header.get("kid") in (None, key.get("kid"))
    ]
    if len(fitting) != 1:  # without a name there must be no choice
        raise LookupError
    return fitting[0]


def _check_signature(signed: bytes, signature: bytes, key: Mapping[str, Any], algorithm: str) -> None:
    def number(name: str) -> int:
        return int.from_bytes(_decode(key[name]))

    if algorithm == "RS256":
        public = rsa.RSAPublicNumbers(number("e"), number("n")).public_key()
        if public.key_size < 2048:
            raise InvalidSignature
        public.verify(signature, signed, padding.PKCS1v15(), hashes.SHA256())
        return
    if key.get("crv") != "P-256" or len(signature) != 64:
        raise InvalidSignature
    halves = (int.from_bytes(signature[:32]), int.from_bytes(signature[32:]))
    point = ec.EllipticCurvePublicNumbers(number("x"), number("y"), ec.SECP256R1()).public_key()
    point.verify(utils.encode_dss_signature(*halves), signed, ec.ECDSA(hashes.SHA256()))


def is_safe(address: object, *, of: str = "http:") -> bool:
    """Returns whether what is sent to `address` is encrypted, or stays here as for an issuer `of` http."""
    parts = urlsplit(address if isinstance(address, str) else "")
    try:
        here = parts.hostname == "localhost" or ipaddress.ip_address(parts.hostname or "").is_loopback
    except ValueError:
        here = False
    return bool(parts.hostname) and (
        parts.scheme == "https" or (parts.scheme == "http" and here and of.startswith("http:"))
    )


def _read_secret(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        raise SchemaError("[serve.oidc] client_secret_file cannot be read") from None


def _derive(secret: str, what: str) -> str:
    """Returns a value that nobody finds without `secret`, another one for each use."""
    return _encode(hmac.digest(secret.encode(), what.encode(), "sha256"))


def _encode(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
