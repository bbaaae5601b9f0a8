import logging

from hypothesis import settings

# The first example of a test pays for imports and compiled kernels, on a machine that is often
# shared; what takes too long is seen in the durations that pytest prints.
settings.register_profile("puffin-ann", deadline=None)
settings.load_profile("puffin-ann")

# Its connections say farewell when they are collected, which may be after pytest's streams closed.
logging.getLogger("py4j").setLevel(logging.WARNING)
