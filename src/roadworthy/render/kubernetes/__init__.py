"""What runs on Kubernetes: objects as plain data, each setting with its reason."""
