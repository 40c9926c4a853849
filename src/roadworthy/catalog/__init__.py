"""Facts shipped as YAML: GPUs, links, engines, model shapes; each with its source."""
