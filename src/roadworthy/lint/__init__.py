"""Deployment files that people already have: read, judged against the catalog, mended."""
