"""Documents over HTTP: the data port lets the caller in and passes the request on, a process of its own serves it."""
