"""Settings of all tests."""

import os

from hypothesis import settings

# Where nobody watches, the same examples every time; at a desk, new ones.
settings.register_profile("steady", derandomize=True)
settings.load_profile("steady" if os.environ.get("CI") else "default")
