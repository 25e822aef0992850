"""What holds for every test: property tests draw the same examples each time, and the built-in model is built once."""

import os

import pytest
from hypothesis import settings

# A run must not fail for an example that the last one happened not to draw. New examples come with `--hypothesis-profile=explore`.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("explore", deadline=None)
settings.load_profile("repeatable")


@pytest.fixture(autouse=True, scope="session")
def tiny_cache(tmp_path_factory):
    """Where the built-in model is kept: a folder of this session, for all its workers, apart from the user's own."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "tiny-cache"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LLM_MARL_CACHE", str(folder))
        yield folder
