"""Where a policy is: a path, or an address; what is wrong with one is said without its password."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest

from enforcer.config import EnforcerConfig
from enforcer.errors import ConfigError, PolicyAway
from enforcer.policies import load_policy
from enforcer.policies.addresses import is_address, read_policy_address
from enforcer.policies.push import push_policy
from enforcer.policies.sources import judge_policy, read_only_from


@pytest.mark.parametrize(
    ("where", "name", "key", "servers"),
    [
        ("redis://u:secret@a", "redis://a:6379/0?key=tallygate:policy", "tallygate:policy", ("redis://u:secret@a",)),
        ("redis://a:1/3?key=p%3A1", "redis://a:1/3?key=p:1", "p:1", ("redis://a:1/3",)),
        (
            "rediss://:secret@a/0?ssl_ca_certs=/ca.pem&key=p",
            "rediss://a:6379/0?key=p",
            "p",
            ("rediss://:secret@a/0?ssl_ca_certs=/ca.pem",),
        ),
        ("unix:///run/valkey.sock?db=2&key=p", "unix:///run/valkey.sock?key=p", "p", ("unix:///run/valkey.sock?db=2",)),
        (
            "redis+cluster://u:secret@a:1,b?key=p",
            "redis+cluster://a:1,b?key=p",
            "p",
            ("redis://u:secret@a:1/0", "redis://u:secret@b/0"),
        ),
        (
            "redis+sentinel://u:secret@a:1,b/main?key=p",
            "redis+sentinel://a:1,b/main?key=p",
            "p",
            ("redis://a:1/0", "redis://b:26379/0"),
        ),
    ],
)
def test_each_form_names_key_and_servers_and_is_shown_without_credentials(
    where: str, name: str, key: str, servers: tuple[str, ...]
) -> None:
    """The name stands in logs, events and pages."""
    assert is_address(where)
    found = read_policy_address(where)
    assert (name, key, servers) == (found.name, found.key, tuple(found.servers))
    assert ("main" if "sentinel" in where else "") == found.service
    assert "secret" not in repr(found)


def test_a_mistyped_option_is_answered_with_all_that_there_are() -> None:
    """`keys` for `key`: the list that follows must have it."""
    for where in ("redis://a?keys=p", "redis+cluster://a?keys=p"):
        with pytest.raises(ConfigError, match="policy address has the option 'keys'; allowed: key, fallback, db, and"):
            read_policy_address(where)


def test_a_push_without_a_place_asks_where_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """The name of a file that nobody gave is no help."""
    monkeypatch.delenv("TALLYGATE_POLICY", raising=False)
    with pytest.raises(ConfigError, match=r"^where to\? give --to redis://.*, or set TALLYGATE_POLICY$"):
        push_policy("policy.yaml", to=None)


@pytest.mark.parametrize(
    "where",
    [
        "redis://u:secret@a?key=",
        "redis://u:secret@a?key=a&key=b",
        "redis://u:secret@a?key=a%0Ab",
        "redis://u:secret@a?other=1",
        "redis://u:secret@a?fallback=",
        "http://u:secret@a?key=p",
        "redis+sentinel://u:secret@a?key=p",
        "redis+cluster://u:secret@a/main?key=p",
    ],
)
def test_a_wrong_address_is_a_wrong_setting_and_shows_no_password(where: str) -> None:
    """What no retry can mend must not start, and an error ends up in every log."""
    with pytest.raises(ConfigError, match=r"TALLYGATE_POLICY: policy address .*allowed") as caught:
        EnforcerConfig.from_env({"TALLYGATE_POLICY": where})
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("where", ["policy.yaml", "/etc/tallygate/policy.yaml", "redis:policy.yaml", "C:/p.yaml"])
def test_anything_else_is_a_path(where: str) -> None:
    """Nobody's file may become an address."""
    assert not is_address(where)
    assert where == EnforcerConfig.from_env({"TALLYGATE_POLICY": where}).policy_path


def test_a_start_without_an_answer_takes_the_fallback_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A fleet must be able to restart while the policy's server is away, if its operator says by what."""
    path = tmp_path / "a policy.yaml"
    path.write_text("version: 3\nplans: {p: {rate_per_s: 1, burst: 1}}\ndefault_plan: p\n")
    nobody = "redis://u:secret@127.0.0.1:9?key=p"
    with pytest.raises(PolicyAway, match=r"redis://127.0.0.1:9/0\?key=p: cannot be read"):
        load_policy(nobody)
    fallback = f"{nobody}&fallback={quote(str(path))}"
    assert 3 == judge_policy(fallback)[0].version
    assert [] == caplog.records
    assert 3 == load_policy(fallback).version
    (record,) = caplog.records
    assert f"begun with version 3 of {path}" in record.getMessage()
    assert "secret" not in caplog.text
    with pytest.raises(PolicyAway):
        read_only_from(fallback)
