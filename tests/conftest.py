"""What holds for every test: property tests draw the same examples each time."""

from hypothesis import settings

# A run must not fail for an example that the last one happened not to draw. New examples come with `--hypothesis-profile=explore`.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("explore", deadline=None)
settings.load_profile("repeatable")
