"""What outlives a process, and what processes share.

``state`` is the facade of the tables (SQLite or PostgreSQL): tenants, keys, ledger, audit trail. ``writer`` is the
thread that fills the ledger. ``meters`` opens what counts the limits of several workers or hosts (Redis, Valkey,
SQLite, PostgreSQL). Drivers are imported when a URL asks for them.
"""
