"""Memory of every rank, legal layouts, KV capacity, analytic time, and why each loser lost. Pure."""
