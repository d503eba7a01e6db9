"""Who is calling: identity from a header, and never a credential."""

from __future__ import annotations

from typing import Any

import pytest

from enforcer.errors import ConfigError, InvalidField
from enforcer.keying import from_api_key, from_header

SECRET = "a-secret-of-enough-bytes"
KEY = "live-9f8e7d6c5b4a39281706-Zq4T"


def _scope(*headers: tuple[str, str]) -> dict[str, Any]:
    return {"type": "http", "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in headers]}


def test_header_is_found_whatever_its_case() -> None:
    """ASGI lowers names; people write them as they like."""
    assert "acme" == from_header("X-Account")(_scope(("Accept", "*/*"), ("X-Account", "acme")))


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_a_name_beyond_ascii_is_the_same_caller_in_either_encoding(encoding: str) -> None:
    """The policy is UTF-8 and names `café`; as mojibake it would be another caller, on the default plan."""
    scope = {"type": "http", "headers": [(b"x-account", "café".encode(encoding))]}
    assert "café" == from_header("x-account")(scope)


def test_no_header_or_an_empty_one_is_anonymous() -> None:
    """Whoever does not say who it is shares the bounded bucket."""
    assert from_header("x-account")(_scope()) is None
    assert from_header("x-account")(_scope(("x-account", ""))) is None


def test_two_headers_are_refused() -> None:
    """A client that adds a second one must not choose whose limit it spends."""
    with pytest.raises(InvalidField, match="more than once"):
        from_header("x-account")(_scope(("x-account", "acme"), ("x-account", "other")))


@pytest.mark.parametrize("name", ["", "x account", "x:account", "é"])
def test_a_header_name_of_another_form_is_refused(name: str) -> None:
    """It would never match, and everybody would be anonymous."""
    with pytest.raises(ConfigError, match="header name"):
        from_header(name)


@pytest.mark.parametrize(
    "headers", [(("x-api-key", KEY),), (("authorization", f"Bearer {KEY}"),), (("authorization", f"bearer  {KEY} "),)]
)
def test_an_api_key_becomes_an_id_that_does_not_contain_it(headers: tuple[tuple[str, str], ...]) -> None:
    """No secret may reach Redis, Kafka, ClickHouse, a log or a page."""
    identity = from_api_key(headers[0][0], SECRET)(_scope(*headers))
    assert identity is not None
    assert identity.startswith("key-")
    assert identity.endswith("-Zq4T")
    assert KEY[:-4] not in identity
    assert KEY[5:12] not in identity
    assert len(identity) < 64


def test_the_same_key_is_the_same_caller_and_another_secret_another() -> None:
    """Unkeyed, the hash of a short key could be turned back by trying."""
    scope = _scope(("x-api-key", KEY))
    first, again = from_api_key("x-api-key", SECRET), from_api_key("x-api-key", SECRET.encode())
    assert first(scope) == again(scope)
    assert first(scope) != from_api_key("x-api-key", SECRET + "x")(scope)
    assert first(scope) != first(_scope(("x-api-key", KEY[:-5] + "x" + KEY[-4:])))


def test_a_short_key_shows_nothing_of_itself() -> None:
    """Four of eight characters are half a secret."""
    identity = from_api_key("x-api-key", SECRET)(_scope(("x-api-key", "abcd1234")))
    assert identity is not None
    assert "1234" not in identity.removeprefix("key-")[20:]


def test_no_key_is_anonymous_and_two_or_a_huge_one_are_refused_without_showing_it() -> None:
    """The message goes to the client and to logs."""
    identify = from_api_key("authorization", SECRET)
    assert identify(_scope()) is None
    assert identify(_scope(("authorization", "Bearer "))) is None
    for scope in (_scope(("authorization", KEY), ("authorization", KEY)), _scope(("authorization", KEY * 500))):
        with pytest.raises(InvalidField) as caught:
            identify(scope)
        assert KEY not in str(caught.value)


@pytest.mark.parametrize("secret", ["", "short", "x" * 65])
def test_a_secret_of_a_wrong_length_is_refused(secret: str) -> None:
    """An empty secret would make every hash one that anybody can compute."""
    with pytest.raises(ConfigError, match="16 to 64"):
        from_api_key("x-api-key", secret)
