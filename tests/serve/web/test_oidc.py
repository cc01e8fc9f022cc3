"""Sign-in by OpenID Connect against a provider of our own: what opens a session, and all that must not."""

import json
from dataclasses import replace
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from helpers.cli import run_main
from helpers.provider import CLIENT, SECRET, Provider
from helpers.site import COUNT, Site
from helpers.walk import Walk
from sfumato.core.errors import AccessDenied, SfumatoError
from sfumato.serve.oidc import read_oidc, verify_token
from sfumato.serve.web.frame import _keep_inside

SECTION = """
[serve.oidc]
issuer = "{issuer}"
client_id = "{client}"
client_secret_file = "client.secret"
redirect_uri = "http://127.0.0.1/oidc/callback"
session_hours = 2
token_days = 3
[serve.oidc.groups]
stewards = "steward"
readers = "viewer"
analysts = {{role = "analyst", share = "1/4"}}
seniors = {{role = "analyst", share = 2}}
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A site whose people may also come from a provider."""
    pytest.importorskip("uvicorn")
    folder = tmp_path_factory.mktemp("oidc")
    with Provider() as provider:
        site = Site(folder)
        with (folder / "sfumato.toml").open("a") as file:
            file.write(SECTION.format(issuer=provider.issuer, client=CLIENT))
        (folder / "client.secret").write_text(SECRET + "\n")
        with site:
            yield site, provider


@pytest.fixture
def parties(served):
    """Both as they were at first, with nobody known of the provider's."""
    site, provider = served
    fresh = Provider()
    for name in (
        "algorithm",
        "kid",
        "rsa",
        "ec",
        "person",
        "groups",
        "claims",
        "header",
        "facts",
        "reply",
        "forgets",
    ):
        setattr(provider, name, getattr(fresh, name))
    provider.signing = None
    site.service.renew(site.service.curator, site.settings)
    site.service._failed.clear()
    site.service.state.keep_people([])
    return site, provider


def leave(site, onward="/"):
    """Where a browser is sent, and the cookie that it keeps."""
    got = site.call("GET", f"/oidc?{urlencode({'next': onward})}")
    assert got.status == 303, got.text
    return got.headers["Location"], got.cookie


def come_back(site, given, cookie):
    return site.call("GET", f"/oidc/callback?{urlencode(given)}", cookie=cookie)


def sign_in(site, provider, onward="/"):
    address, cookie = leave(site, onward)
    return come_back(site, provider.authorize(address), cookie)


def find_session(got):
    return next(
        each.partition(";")[0] for each in got.headers.get_all("Set-Cookie") if each.startswith("sfumato=")
    )


def is_refused(site, got, reason):
    cookies = got.headers.get_all("Set-Cookie") or []
    return (
        got.status == 403 and reason in got.text and not any(each.startswith("sfumato=") for each in cookies)
    )


@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
def test_somebody_of_a_group_enters_with_its_role_and_share(parties, algorithm):
    site, provider = parties
    provider.algorithm = algorithm
    assert "Sign in with 127.0.0.1" in site.call("GET", "/login").text
    got = sign_in(site, provider, "/tables?x=1")
    assert got.status == 200, got.text
    assert got.headers["Refresh"] == "0; url=/tables?x=1"
    cookie = find_session(got)
    assert "SameSite=strict" in str(got.headers.get_all("Set-Cookie"))
    page = site.call("GET", "/ask", cookie=cookie)
    assert page.status == 200
    assert "olga" in page.text
    assert float(site.service.curator.share("olga").total) == 0.25
    assert site.call("GET", "/people", cookie=cookie).status == 403
    # A token of theirs opens the other doors, within the share.
    token = site.service.state.new_token("olga")
    reply = site.call("POST", "/api/sql", by=token, send={"sql": COUNT})
    assert reply.status == 402
    assert "share" in reply.text


def test_the_greatest_right_of_several_groups_counts(parties):
    site, provider = parties
    provider.groups = ["unknown", "analysts", "readers", "seniors"]
    assert sign_in(site, provider).status == 200
    assert site.service.state.find_user("olga").role == "analyst"
    assert float(site.service.curator.share("olga").total) == 2
    provider.groups.append("stewards")
    cookie = find_session(sign_in(site, provider))
    assert site.call("GET", "/people", cookie=cookie).status == 200
    assert site.service.curator.share("olga") is None


def test_a_share_that_a_steward_set_stays_until_the_groups_change(parties):
    site, provider = parties
    assert sign_in(site, provider).status == 200
    site.service.curator.set_share("olga", "0.01")
    assert sign_in(site, provider).status == 200
    assert float(site.service.curator.share("olga").total) == 0.01
    provider.groups = ["seniors"]
    assert sign_in(site, provider).status == 200
    assert float(site.service.curator.share("olga").total) == 2


@pytest.mark.parametrize("groups", [[], ["unknown"], None, [["stewards"]], {"stewards": 1}])
def test_without_a_group_role_sessions_and_token_end(parties, groups):
    site, provider = parties
    provider.groups = ["stewards"]
    sign_in(site, provider)
    token = site.service.state.new_token("olga")
    cookie = find_session(sign_in(site, provider))
    assert site.call("GET", "/people", cookie=cookie).status == 200
    provider.groups = groups
    assert is_refused(site, sign_in(site, provider), "of your groups may enter")
    assert site.call("GET", "/people", cookie=cookie).status == 303
    assert site.call("GET", "/api/budget", by=token).status == 401
    provider.groups = ["readers"]
    assert sign_in(site, provider).status == 200
    assert site.service.state.find_user("olga").role == "viewer"
    assert site.call("GET", "/api/budget", by=token).status == 401


def test_who_never_comes_back_is_unknown_after_the_stated_times(parties, monkeypatch):
    site, provider = parties
    sign_in(site, provider)
    state = site.service.state
    token = state.new_token("olga")
    cookie = find_session(sign_in(site, provider))
    import sfumato.serve.state as module

    now = module.time.time()
    for hours, session, known in ((1.9, 200, True), (2.1, 303, True), (71.9, 303, True), (72.1, 303, False)):
        monkeypatch.setattr(
            module, "time", type("Later", (), {"time": staticmethod(lambda h=hours: now + 3600 * h)})
        )
        assert site.call("GET", "/ask", cookie=cookie).status == session, hours
        assert (state.find_token(token) is not None) == known
        assert (state.find_user("olga") is not None) == known
        assert state.find_verifier("olga").fits(token) == known
        assert state.find_user("ana") is not None


def test_a_nightly_list_ends_who_is_not_named(parties, tmp_path):
    site, provider = parties
    cookie = find_session(sign_in(site, provider))
    names = tmp_path / "names.txt"
    names.write_text("\n")
    assert "names nobody" in run_main("user", "sync", str(names), cwd=site.folder, code=1).stderr
    for text, status, gone in (("ben\nolga\n", 200, []), ("ben\n", 303, ["olga"])):
        names.write_text(text)
        done = run_main("user", "sync", str(names), "--json", cwd=site.folder)
        assert json.loads(done.stdout) == {"ended": gone}
        assert site.call("GET", "/ask", cookie=cookie).status == status
    assert site.service.state.find_user("ana") is not None


@pytest.mark.parametrize("name", ["ada", "ana"])
def test_nobody_enters_a_local_account_by_its_name(parties, name):
    site, provider = parties
    share = site.service.curator.share(name)
    provider.person, provider.groups = {"sub": "666", "preferred_username": name}, ["stewards"]
    assert is_refused(site, sign_in(site, provider), "already")
    assert site.service.curator.share(name) == share
    # Nor that of somebody else of the provider's.
    provider.person = {"sub": "1001", "preferred_username": "olga"}
    assert sign_in(site, provider).status == 200
    provider.person = {"sub": "1002", "preferred_username": "olga"}
    assert is_refused(site, sign_in(site, provider), "already")
    # Whoever has another name now is the same person.
    provider.person = {"sub": "1001", "preferred_username": "ada"}
    assert "olga" in site.call("GET", "/people", cookie=find_session(sign_in(site, provider))).text


CLAIMS = {
    "another nonce": ({"nonce": "x"}, "of another sign-in"),
    "no nonce": ({"nonce": None}, "of another sign-in"),
    "another audience": ({"aud": "other"}, "another audience"),
    "no audience": ({"aud": None}, "another audience"),
    "several audiences": ({"aud": [CLIENT, "other"]}, "another audience"),
    "another party": ({"aud": [CLIENT, "other"], "azp": "other"}, "another audience"),
    "another issuer": ({"iss": "https://evil.example"}, "of another issuer"),
    "an issuer with a slash": ({"iss": "http://127.0.0.1/realm/"}, "of another issuer"),
    "expired": ({"exp": 1_000_000_000}, "too old"),
    "no end": ({"exp": None}, "has no times"),
    "an end in words": ({"exp": "9999999999"}, "has no times"),
    "an end that is true": ({"exp": True}, "has no times"),
    "no number": ({"exp": float("nan")}, "too old"),
    "of the future": ({"iat": 9_999_999_999}, "not valid yet"),
    "not before": ({"nbf": 9_999_999_999}, "not valid yet"),
    "nobody": ({"sub": None}, "of nobody"),
    "a number for a person": ({"sub": 5}, "of nobody"),
}


@pytest.mark.parametrize("case", CLAIMS)
def test_wrong_claims_open_nothing(parties, case):
    site, provider = parties
    provider.claims, reason = CLAIMS[case]
    assert is_refused(site, sign_in(site, provider), reason)
    assert site.service.state.find_user("olga") is None


def test_a_token_is_good_for_one_sign_in(parties):
    site, provider = parties
    claims = {"iss": provider.issuer, "aud": CLIENT, "iat": 1, "exp": 9_999_999_999, "nonce": "n", "sub": "1"}
    settings, keys = site.settings.oidc, provider.list_keys()["keys"]
    assert verify_token(provider.sign(claims), keys, settings, nonce="n") == claims
    with pytest.raises(AccessDenied, match="of another sign-in"):
        verify_token(provider.sign(claims), keys, settings, nonce="m")


@pytest.mark.parametrize("algorithm", ["none", "None", "HS256", "RS512", ""])
def test_no_other_algorithm_is_taken(parties, algorithm):
    site, provider = parties
    provider.algorithm = algorithm
    assert is_refused(site, sign_in(site, provider), "not signed with RS256 or ES256")


@pytest.mark.parametrize(
    "header", [{"alg": "ES256"}, {"crit": ["exp"]}, {"jwk": {}, "kid": "mine"}, {"alg": None}]
)
def test_what_a_token_says_of_its_key_opens_nothing(parties, header):
    site, provider = parties
    provider.header = header
    assert is_refused(site, sign_in(site, provider), "the ")


def test_the_key_of_somebody_else_opens_nothing_and_a_new_one_of_the_provider_does(parties):
    site, provider = parties
    provider.signing = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    assert is_refused(site, sign_in(site, provider), "signature")
    assert provider.redeemed
    provider.rsa, provider.kid = provider.signing, "second"
    assert sign_in(site, provider).status == 200


def test_a_short_key_opens_nothing(parties):
    site, provider = parties
    provider.rsa = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    assert is_refused(site, sign_in(site, provider), "signature")


def test_a_reply_opens_one_session_even_if_the_provider_forgets_nothing(parties):
    site, provider = parties
    provider.forgets = False
    address, cookie = leave(site)
    given = provider.authorize(address)
    assert come_back(site, given, cookie).status == 200
    assert is_refused(site, come_back(site, given, cookie), "used already")


def test_a_code_is_worth_nothing_in_another_browser(parties):
    site, provider = parties
    provider.forgets = False
    address, cookie = leave(site)
    theirs = provider.authorize(address)
    mine, my_cookie = leave(site)
    state = provider.authorize(mine)["state"]
    assert is_refused(site, come_back(site, theirs, None), "another browser")
    assert is_refused(site, come_back(site, theirs, my_cookie), "belongs to another sign-in")
    # With the verifier of another sign-in the provider gives nothing.
    assert is_refused(site, come_back(site, {**theirs, "state": state}, my_cookie), "provider refused")
    assert come_back(site, theirs, cookie).status == 200


def test_a_cookie_that_was_changed_or_is_old_opens_nothing(parties, monkeypatch):
    import sfumato.serve.oidc as module

    site, provider = parties
    address, cookie = leave(site)
    given = provider.authorize(address)
    secret, begun, *rest = cookie.split(".")
    changed = ".".join([secret, str(int(begun) + 1), *rest])
    assert is_refused(site, come_back(site, given, changed), "another browser")
    now = module.time.time()
    later = {"time": staticmethod(lambda: now + 601), "monotonic": module.time.monotonic}
    monkeypatch.setattr(module, "time", type("Later", (), later))
    assert is_refused(site, come_back(site, given, cookie), "too old")


@pytest.mark.parametrize(
    "given",
    [
        {"iss": "https://evil.example"},
        {"error": "access_denied"},
        {"code": ""},
        {"state": ""},
        {"state": "\u00e9"},
    ],
)
def test_a_reply_that_is_not_right_is_not_redeemed(parties, given):
    site, provider = parties
    before = provider.redeemed
    provider.reply = given
    assert is_refused(site, sign_in(site, provider), "the ")
    assert provider.redeemed == before


def test_an_issuer_who_says_that_it_is_named_must_be(parties):
    site, provider = parties
    provider.facts = {"authorization_response_iss_parameter_supported": True}
    assert is_refused(site, sign_in(site, provider), "another issuer")
    provider.reply = {"iss": provider.issuer}
    assert sign_in(site, provider).status == 200


def test_two_values_of_one_name_are_not_read(parties):
    site, provider = parties
    address, cookie = leave(site)
    given = [*provider.authorize(address).items(), ("state", "x")]
    assert site.call("GET", f"/oidc/callback?{urlencode(given)}", cookie=cookie).status == 400


@pytest.mark.parametrize(
    "facts",
    [
        {"issuer": "http://127.0.0.1:1/other"},
        {"jwks_uri": "file:///etc/passwd"},
        {"token_endpoint": "http://evil.example/token"},
        {"authorization_endpoint": "javascript:alert(1)"},
        {"authorization_endpoint": None},
    ],
)
def test_a_discovery_document_of_somebody_else_leads_nowhere(parties, facts):
    site, provider = parties
    provider.facts = facts
    got = site.call("GET", "/oidc")
    assert got.status == 403
    assert "discovery document" in got.text


def test_a_provider_that_fails_is_told_in_words(parties):
    site, provider = parties
    provider.facts = {"token_endpoint": provider.issuer + "/nowhere"}
    assert is_refused(site, sign_in(site, provider), "provider refused")
    site.service.renew(site.service.curator, site.settings)
    provider.facts = {"jwks_uri": "http://127.0.0.1:1/keys"}
    assert "cannot be reached" in site.call("GET", "/oidc").text


def test_one_address_fails_so_often_only(parties):
    site, _provider = parties
    statuses = {come_back(site, {}, None).status for _ in range(11)}
    assert statuses == {403, 429}
    assert (
        site.call("POST", "/login", form={"name": "ana", "password": "ana password", "next": "/"}).status
        == 303
    )


@pytest.mark.slow
def test_a_browser_comes_back_from_another_site_signed_in(parties, browser):
    site, _ = parties
    page = f"http://localhost:{site.port}"  # another site than the provider's 127.0.0.1
    oidc = replace(site.settings.oidc, redirect_uri=f"{page}/oidc/callback")
    site.service.renew(site.service.curator, replace(site.settings, oidc=oidc))
    walk = Walk(browser, site, width=390)
    browser.visit(f"{page}/login?{urlencode({'next': '/tables'})}", width=390)
    walk.ask("document.querySelector('.door a.button').click()")
    walk.wait(
        "location.pathname == '/tables' && document.querySelector('.who')?.textContent.includes('olga')"
    )


@pytest.mark.parametrize(
    "onward",
    [
        "https://evil.example",
        "//evil.example",
        "/\\evil.example",
        "/\t/evil.example",
        "\n//evil.example",
        "evil",
        "",
        "/\r\nX: y",
    ],
)
def test_nobody_is_led_elsewhere(parties, onward):
    site, provider = parties
    inside = _keep_inside(onward)
    assert inside in ("/", "/X:%20y")
    got = sign_in(site, provider, onward)
    assert got.headers["Refresh"] == f"0; url={inside}"
    assert "evil" not in got.text
    form = {"name": "ana", "password": "ana password", "next": onward.replace("\r\n", "\n").replace("\n", "")}
    assert "evil" not in site.call("POST", "/login", form=form).headers["Location"]


def test_the_address_asks_for_what_it_needs(parties):
    site, _ = parties
    address, cookie = leave(site)
    asked = dict(parse_qsl(urlsplit(address).query))
    assert asked["realm"] == "1"
    assert asked["redirect_uri"] == "http://127.0.0.1/oidc/callback"
    assert len({asked["state"], asked["nonce"], asked["code_challenge"]}) == 3
    assert not any(asked[key] in cookie for key in ("state", "nonce", "code_challenge"))


@pytest.mark.parametrize(
    "changed",
    [
        {"issuer": "http://login.example.org"},
        {"issuer": ""},
        {"redirect_uri": "https://sfumato.example.org/elsewhere"},
        {"groups": {}},
        {"groups": {"a": "owner"}},
        {"groups": {"a": "analyst"}},
        {"groups": {"a": {"role": "viewer", "share": 1}}},
        {"groups": {"a": {"role": "analyst", "share": 0}}},
        {"session_hours": 0},
        {"audience": "x"},
        {"client_id": 5},
    ],
)
def test_settings_that_cannot_be(changed):
    section = {
        "issuer": "https://login.example.org",
        "client_id": "a",
        "redirect_uri": "https://sfumato.example.org/oidc/callback",
        "groups": {"a": "viewer"},
    }
    assert read_oidc(section).groups == {"a": ("viewer", None)}
    with pytest.raises(SfumatoError, match=r"serve[.]oidc"):
        read_oidc(section | changed)


@pytest.mark.parametrize("token", ["", "a.b", "a.b.c", "e30.e30.", "W10.W10.e30", "é.é.é", "e30.e30.e30.e30"])
def test_what_is_no_token_is_refused(token):
    with pytest.raises(AccessDenied):
        verify_token(token, [], None, nonce="n")


def test_a_server_without_a_provider_has_no_such_door(site):
    assert "/oidc" not in site.call("GET", "/login").text
    assert site.call("GET", "/oidc").status == 403
    assert site.call("GET", "/oidc/callback?code=a&state=b").status == 403
