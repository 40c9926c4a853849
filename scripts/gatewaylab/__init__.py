"""Measuring the gateway: what the scripts bench-gateway, soak-gateway, fuzz-gateway and chaos-gateway share."""
