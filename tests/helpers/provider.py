"""An OpenID provider on loopback, small and as wicked as a test wants it."""

import base64
import hashlib
import hmac
import json
import secrets
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, parse_qsl, unquote, urlencode, urlsplit

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa, utils

CLIENT = "sfumato of the tests"
SECRET = "s3cret: 50 %"


def encode(content):
    content = content if isinstance(content, bytes) else json.dumps(content).encode()
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def encode_number(number):
    return encode(number.to_bytes((number.bit_length() + 7) // 8))


class Provider:
    """Answers at `issuer`; `person` is who is signed in there, `groups` theirs."""

    def __init__(self):
        self.rsa = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.ec = ec.generate_private_key(ec.SECP256R1())
        self.algorithm, self.kid = "RS256", "first"
        self.person, self.groups = {"sub": "1001", "preferred_username": "olga"}, ["analysts"]
        self.claims, self.header, self.facts, self.reply = {}, {}, {}, {}
        self.forgets = True  # a code that was redeemed
        self.codes, self.redeemed = {}, 0
        self.signing = None

    def __enter__(self):
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                provider.answer(self, None)

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                provider.answer(self, dict(parse_qsl(body, strict_parsing=True)))

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.issuer = f"http://127.0.0.1:{self.server.server_port}/realm"
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    def answer(self, request, form):
        path = urlsplit(request.path).path.removeprefix("/realm")
        if path == "/authorize":  # where somebody is signed in already
            given = self.authorize(request.path)
            asked = self.codes[given["code"]]
            request.send_response(302)
            request.send_header("Location", f"{asked['redirect_uri']}?{urlencode(given)}")
            request.end_headers()
            return
        known = {"/.well-known/openid-configuration": self.describe, "/keys": self.list_keys}
        if path == "/token":
            status, body = self.redeem(form, request.headers.get("Authorization", ""))
        elif path in known:
            status, body = 200, known[path]()
        else:
            status, body = 404, {}
        sent = json.dumps(body).encode()
        request.send_response(status)
        request.send_header("Content-Length", str(len(sent)))
        request.end_headers()
        request.wfile.write(sent)

    def describe(self):
        places = {
            "authorization_endpoint": "/authorize?realm=1",
            "token_endpoint": "/token",
            "jwks_uri": "/keys",
        }
        return {"issuer": self.issuer, **{key: self.issuer + at for key, at in places.items()}, **self.facts}

    def list_keys(self):
        public, point = self.rsa.public_key().public_numbers(), self.ec.public_key().public_numbers()
        modulus = {"kty": "RSA", "n": encode_number(public.n), "e": encode_number(public.e)}
        curve = {
            "kty": "EC",
            "crv": "P-256",
            "x": encode(point.x.to_bytes(32)),
            "y": encode(point.y.to_bytes(32)),
        }
        return {"keys": [{**each, "kid": self.kid, "use": "sig"} for each in (modulus, curve)]}

    def authorize(self, address):
        """What the provider sends a browser back with that followed `address`."""
        asked = {key: value for key, (value,) in parse_qs(urlsplit(address).query).items()}
        assert asked["response_type"] == "code"
        assert asked["code_challenge_method"] == "S256"
        assert "openid" in asked["scope"].split()
        assert asked["client_id"] == CLIENT
        code = secrets.token_urlsafe(16)
        self.codes[code] = asked
        return {"code": code, "state": asked["state"], **self.reply}

    def redeem(self, form, authorization):
        basic = base64.b64decode(authorization.removeprefix("Basic ")).decode().split(":")
        if [unquote(each) for each in basic] != [CLIENT, SECRET]:
            return 401, {"error": "invalid_client"}
        asked = (self.codes.pop if self.forgets else self.codes.get)(form["code"], None)
        if asked is None or form["redirect_uri"] != asked["redirect_uri"]:
            return 400, {"error": "invalid_grant"}
        challenge = encode(hashlib.sha256(form["code_verifier"].encode()).digest())
        if challenge != asked["code_challenge"]:
            return 400, {"error": "invalid_grant"}
        self.redeemed += 1
        now = time.time()
        claims = {"iss": self.issuer, "aud": CLIENT, "iat": now, "exp": now + 300, "nonce": asked["nonce"]}
        claims |= {**self.person, "groups": self.groups, **self.claims}
        claims = {key: value for key, value in claims.items() if value is not None}
        return 200, {"access_token": "unused", "token_type": "Bearer", "id_token": self.sign(claims)}

    def sign(self, claims):
        header = {"alg": self.algorithm, "kid": self.kid, **self.header}
        signed = f"{encode(header)}.{encode(claims)}"
        if self.algorithm == "RS256":
            key = self.signing or self.rsa
            signature = key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        elif self.algorithm == "ES256":
            halves = utils.decode_dss_signature(self.ec.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
            signature = b"".join(each.to_bytes(32) for each in halves)
        elif self.algorithm == "HS256":  # with what everybody knows
            signature = hmac.digest(self.list_keys()["keys"][0]["n"].encode(), signed.encode(), "sha256")
        else:
            signature = b""
        return f"{signed}.{encode(signature)}"
