"""A browser for the whole session, and small models of every kind."""

from collections.abc import Iterator

import pytest
from helpers.models.gallery import Gallery
from helpers.pages.browser import Browser, started


@pytest.fixture(scope="session")
def gallery() -> Gallery:
    return Gallery()


@pytest.fixture(scope="session")
def window() -> Iterator[Browser]:
    with started() as browser:
        yield browser


@pytest.fixture
def browser(window: Browser) -> Iterator[Browser]:
    """The session's browser; a page that complains fails the test."""
    window.resize(1250, 1000)
    window.console()
    yield window
    assert window.console() == []
