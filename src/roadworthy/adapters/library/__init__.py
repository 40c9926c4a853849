"""Collections of documents of many tenants on disk, each in a folder of its own, and the work that is done on them."""
