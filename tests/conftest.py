"""How the tests run: no example is too slow because the machine is busy, and no setting of the
person who runs them counts.
"""

from __future__ import annotations

import os

from hypothesis import settings

from reliable_pubsub.common.settings import ENVIRONMENT_PREFIX

for name in [name for name in os.environ if name.startswith(ENVIRONMENT_PREFIX)]:
    del os.environ[name]

settings.register_profile("house", settings(), deadline=None)
settings.load_profile("house")
