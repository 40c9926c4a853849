"""The data port: from a client's bytes to an engine's and back.

A request's way::

    ClientConnection   HTTP/1.1 from the client: limits, framing, one request at a time
      -> DataPlane     route, key, body: what may run (``screen``, ``begin``)
        -> Exchange    one request in progress: dispatch, retry while the client has seen nothing, relay, settle
          -> EngineConnection   HTTP/1.1 to one engine, from that engine's pool

Everything is a callback on one event loop; the only coroutine on the way is opening a new connection to an engine.
"""
