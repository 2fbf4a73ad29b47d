//! Integration tests: real processes, sockets and files.
