"""One browser for all tests that want one: a session can hold no second."""

from web_browser import browser, visit

__all__ = ["browser", "visit"]
