"""The gateway: one OpenAI-compatible port in front of several engines, and an admin port beside it.

``data`` relays (asyncio protocols on both sides, no framework), ``admin`` shows. ``service.Gateway`` joins the two;
``route`` decides everything.
"""
