"""Whose key it is."""

from __future__ import annotations

import gc

import pytest

from roadworthy.core.errors import SpecError
from roadworthy.route.tenants import ANONYMOUS, TenantBook
from roadworthy.spec.values import Tenant

PEPPER = b"p" * 32
ACME = Tenant(id="acme", key="sk-acme-0123456789", weight=2.0)
BETA = Tenant(id="beta", key="sk-beta-0123456789")


def test_a_key_finds_its_tenant_and_no_other() -> None:
    book = TenantBook([ACME, BETA], pepper=PEPPER)
    found = book.find(b"sk-acme-0123456789")
    assert found is not None
    assert (found.id, found.weight) == ("acme", 2.0)
    for wrong in (None, b"", b"sk-acme", b"sk-acme-0123456789 ", b"SK-ACME-0123456789", b"\xff"):
        assert book.find(wrong) is None


def test_keys_are_not_kept_in_clear() -> None:
    book = TenantBook([Tenant(id="x", key="-".join(["a", "rare", "key"]))], pepper=PEPPER)
    assert all(tenant.key is None for tenant in book)
    gc.collect()
    reachable, seen = [book.__dict__], []
    while reachable:
        item = reachable.pop()
        seen.append(item)
        if isinstance(item, dict):
            reachable += [*item.keys(), *item.values()]
        elif isinstance(item, tuple):
            reachable += item
    assert "a-rare-key" not in [item for item in seen if isinstance(item, str)]


def test_without_tenants_everyone_is_anonymous() -> None:
    book = TenantBook([], pepper=PEPPER)
    assert book.open_access
    assert book.find(None) is book.find(b"anything") is ANONYMOUS
    assert list(book) == [ANONYMOUS]


def test_every_tenant_without_a_key_or_with_anothers_is_named() -> None:
    tenants = [ACME, Tenant(id="none"), Tenant(id="empty", key=""), Tenant(id="thief", key=ACME.key)]
    with pytest.raises(SpecError) as refused:
        TenantBook(tenants, pepper=PEPPER)
    assert [problem.path for problem in refused.value.problems] == [
        "tenants[1].key",
        "tenants[2].key",
        "tenants[3].key",
    ]
    assert "acme" in refused.value.problems[2].seen
    assert "sk-acme" not in str(refused.value.problems)


def test_the_pepper_changes_every_digest() -> None:
    one, other = TenantBook([ACME], pepper=PEPPER), TenantBook([ACME], pepper=b"q" * 32)
    assert set(one._by_digest).isdisjoint(other._by_digest)
