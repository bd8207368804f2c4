"""How the tests run: no example is too slow because the machine is busy."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("house", settings(), deadline=None)
settings.load_profile("house")
