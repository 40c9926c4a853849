"""Keys out of the environment."""

from __future__ import annotations

import pytest

from roadworthy.cli.tenant_keys import with_keys
from roadworthy.core.errors import SpecError
from roadworthy.spec.values import Tenant


def test_a_key_comes_from_the_document_or_the_variable_it_names() -> None:
    tenants = (Tenant(id="a", key="one"), Tenant(id="b", key_env="B_KEY"))
    assert [tenant.key for tenant in with_keys(tenants, {"B_KEY": "two"})] == ["one", "two"]


def test_every_missing_key_is_named_at_once_and_the_hint_mends_it() -> None:
    tenants = (Tenant(id="a", key_env="A_KEY"), Tenant(id="b"), Tenant(id="c", key_env="C_KEY"))
    with pytest.raises(SpecError) as refused:
        with_keys(tenants, {"C_KEY": ""})
    problems = refused.value.problems
    assert [problem.path for problem in problems] == ["tenants[0].key_env", "tenants[1]", "tenants[2].key_env"]
    assert problems[0].hint == "export A_KEY=..."
    mended = (tenants[0], Tenant(id="b", key_env="B_KEY"), tenants[2])
    assert with_keys(mended, {"A_KEY": "1", "B_KEY": "2", "C_KEY": "3"})
