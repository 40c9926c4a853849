"""Keys issued while the service runs: their text is shown once, and only a digest is kept."""

from __future__ import annotations

from dataclasses import replace

import pytest

from roadworthy.route.keys import ApiKey, Change, digest_of, id_in, issued, opens, revoked, superseded
from roadworthy.spec.values import Tenant

PEPPER = b"p" * 32


def make(**more: object) -> tuple[ApiKey, str]:
    made = issued(bytes(range(8)), bytes(range(32)), pepper=PEPPER, created_s=100.0, **{"tenant_id": "a", **more})
    return made.key, made.text


def test_a_new_key_opens_with_its_text_and_no_other() -> None:
    key, text = make()
    assert opens(key, text, pepper=PEPPER, now_s=100)
    assert not opens(key, text + "x", pepper=PEPPER, now_s=100)
    assert not opens(key, text, pepper=b"q" * 32, now_s=100)


def test_neither_text_nor_digest_is_in_the_repr() -> None:
    made = issued(bytes(8), bytes(range(32)), pepper=PEPPER, created_s=0, tenant_id="a")
    assert made.text not in repr(made)
    assert made.text.removeprefix(made.key.prefix) not in repr(made)
    assert repr(made.key.digest) not in repr(made)
    assert made.key.prefix in repr(made)


def test_the_id_is_read_from_the_text_even_when_the_secret_has_dashes() -> None:
    key, _ = make()
    text = f"rw-{key.id}-{'-' * 43}"
    assert id_in(text) == key.id
    assert key.prefix == f"rw-{key.id}"


@pytest.mark.parametrize("text", ["", "sk-demo", "rw-", "rw-short-x", "rw-abcdefghijkl", "rw-abcdefghijklm"])
def test_a_text_of_another_form_has_no_id(text: str) -> None:
    assert id_in(text) is None


def test_a_key_expires_at_its_time_and_not_before() -> None:
    key, text = make(expires_s=200.0)
    assert opens(key, text, pepper=PEPPER, now_s=199.999)
    assert not opens(key, text, pepper=PEPPER, now_s=200.0)


def test_a_revoked_key_opens_nothing_and_revoking_again_keeps_the_first_time() -> None:
    key, text = make()
    gone = revoked(key, 150)
    assert not opens(gone, text, pepper=PEPPER, now_s=150)
    assert revoked(gone, 170) is gone


def test_a_key_to_be_revoked_later_can_be_revoked_now() -> None:
    key, _ = make()
    assert revoked(replace(key, revoked_s=500.0), 150).revoked_s == 150


def test_rotation_never_prolongs_a_key() -> None:
    key, _ = make(expires_s=120.0)
    assert superseded(key, by="n", until_s=500).expires_s == 120
    assert superseded(replace(key, expires_s=None), by="n", until_s=500).expires_s == 500
    assert superseded(key, by="n", until_s=110).replaced_by == "n"


def test_a_key_is_a_tenants_or_the_admin_apis() -> None:
    with pytest.raises(ValueError, match="not both"):
        make(role="viewer")
    with pytest.raises(ValueError, match="not both"):
        make(tenant_id=None)
    with pytest.raises(ValueError, match="scopes"):
        make(tenant_id=None, role="admin", scopes=("trusted-caller",))


def test_too_little_randomness_is_refused() -> None:
    with pytest.raises(ValueError, match="random bytes"):
        issued(b"1234567", bytes(32), pepper=PEPPER, created_s=0, tenant_id="a")


def test_the_digest_is_the_same_for_text_and_bytes() -> None:
    assert digest_of(PEPPER, "rw-x") == digest_of(PEPPER, b"rw-x")


def test_an_empty_change_is_false() -> None:
    assert not Change()
    assert Change(tenants=(Tenant(id="a"),))
