from hypothesis import settings

# The first example of a test pays for imports and caches, on a machine that is often shared.
settings.register_profile("lake", deadline=None)
settings.load_profile("lake")
