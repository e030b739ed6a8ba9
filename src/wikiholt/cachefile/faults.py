"""What goes wrong with a derived cache. The caller answers from the truth instead and says `degraded`."""

from wikiholt.errors import IndexUnavailable


class CacheNotReady(IndexUnavailable):
    """The cache stands for no version yet: it is being built, or it was closed."""

    code = "cache-not-ready"


class CacheBroken(IndexUnavailable):
    """The cache's file does not hold what was written; it is dropped and made anew on the next refresh."""

    code = "cache-broken"
