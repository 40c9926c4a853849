"""Plan, launch, govern, measure and diagnose a self-hosted LLM service on vLLM."""

__version__ = "0.1.0"
