"""The admin port: health, metrics and status, apart from the data port so that a slow page never delays a token."""
