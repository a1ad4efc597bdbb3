"""Around the application: the sockets it listens on, TLS, and a server that drains."""
