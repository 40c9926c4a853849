"""Alembic's entry: the connection, with its transaction open, is handed in by ``state.migrate``."""

from __future__ import annotations

from alembic import context

context.configure(connection=context.config.attributes["connection"], transaction_per_migration=False)
with context.begin_transaction():
    context.run_migrations()
