"""Several processes on one data port, and one process following another without losing a stream.

::

    supervisor   the process that was started: signals, sockets, admin port; relays nothing
      |- worker 0   a whole gateway without an admin port, on its own listening socket of the shared port
      |- worker 1   ...

Every worker has a listening socket of its own (SO_REUSEPORT), which the supervisor keeps open: connections that came
while a worker was dead wait for its successor. A worker that dies is started again. An upgrade starts a second worker
on each socket, with the program as it is on disk now; once it serves, the first one accepts no more, finishes its
streams however long they take, and ends.

Supervisor and worker talk over a socket pair, one JSON object a line. A worker whose supervisor is gone stops.
"""
