"""Who is looking: links and cookies that cannot be made, altered or kept for ever."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import pytest
from itsdangerous import URLSafeTimedSerializer

from dashboard.links import sign_in_link
from dashboard.sessions import Session, SignInRefused, read_link, read_session, sign_link, sign_session
from enforcer.errors import InvalidField

SECRET = "a secret of the tests, long enough"
ACME = Session("customer", "acme")


def test_a_link_signs_in_whom_it_was_made_for() -> None:
    """The round trip that every customer takes."""
    link = sign_in_link("http://127.0.0.1:8321/", SECRET, "customer", "o'brien & söhne/7")
    token = parse_qs(urlsplit(link).query)["token"][0]
    assert Session("customer", "o'brien & söhne/7") == read_link(SECRET, token, max_age_s=60)


# Not the last character: some of its bits are padding, and a change of those alone is the same token.
@pytest.mark.parametrize("place", [0, 5, -2])
def test_an_altered_token_signs_nobody_in(place: int) -> None:
    """One character changed is another token."""
    token = list(sign_link(SECRET, ACME))
    token[place] = "A" if token[place] != "A" else "B"
    with pytest.raises(SignInRefused, match="not valid"):
        read_link(SECRET, "".join(token), max_age_s=60)


def test_a_session_is_not_a_link_and_a_link_is_not_a_session() -> None:
    """A cookie pasted into an address would otherwise extend itself for ever."""
    with pytest.raises(SignInRefused):
        read_link(SECRET, sign_session(SECRET, ACME), max_age_s=60)
    with pytest.raises(SignInRefused):
        read_session(SECRET, sign_link(SECRET, ACME), max_age_s=60)


def test_another_secret_signs_nobody_in() -> None:
    """Changing the secret ends all sessions: the one way to revoke."""
    with pytest.raises(SignInRefused):
        read_session("another secret of the tests", sign_session(SECRET, ACME), max_age_s=60)


def test_an_old_session_has_expired() -> None:
    """A stolen cookie ends."""
    with pytest.raises(SignInRefused, match="expired"):
        read_session(SECRET, sign_session(SECRET, ACME), max_age_s=-1)


@pytest.mark.parametrize(
    "content",
    [["customer", None], ["support", "acme"], ["root", None], "acme", ["customer", ""], {"a": 1}, ["customer", 7]],
)
def test_a_signed_token_of_another_shape_signs_nobody_in(content: object) -> None:
    """Signed is not the same as right: a customer without a caller would see everyone's, or fail."""
    token = URLSafeTimedSerializer(SECRET, salt="tallygate.session").dumps(content)
    with pytest.raises(SignInRefused, match="not valid"):
        read_session(SECRET, token, max_age_s=60)


@pytest.mark.parametrize(
    ("secret", "role", "caller", "field"),
    [("short", "support", None, "secret"), (SECRET, "customer", None, "caller"), (SECRET, "support", "acme", "caller"),
     (SECRET, "admin", None, "role")],
)  # fmt: skip
def test_sign_in_link_names_what_is_wrong(secret: str, role: str, caller: str | None, field: str) -> None:
    """An operator's typing error is answered with the field."""
    with pytest.raises(InvalidField) as caught:
        sign_in_link("http://h", secret, role, caller)  # type: ignore[arg-type]  # a role that is none is the test
    assert field == caught.value.field
    assert secret not in str(caught.value) or secret == SECRET
