"""The twin as an HTTP server with vLLM's surface: ``python -m roadworthy.adapters.twin_server``.

Bytes and shapes are those of vLLM 0.32.0, seen on a running server; the text is filler, the timing is the model's.
What differs from vLLM on purpose: it says that it is simulated (``server`` header, ``/version``, ``owned_by``,
``system_fingerprint``); ``n`` is 1; ``stop``, sampling, tools and ``logprobs`` are ignored, because filler has no
meaning that they could act on; an answer runs to its ``max_tokens``, or without one to the configured length.
"""
