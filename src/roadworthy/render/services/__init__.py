"""What stands around the engines: the edge proxy, metrics, rules and boards."""
