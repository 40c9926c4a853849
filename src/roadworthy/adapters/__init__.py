"""Every socket, subprocess, file, database and real clock of the project; ``gateway`` alone has I/O of its own too."""
