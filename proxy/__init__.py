"""The proxy: a pure broker, a SQLite store, a committer thread, a front door."""
