"""The pages of one wiki, read and written: git is the truth of what they hold, the index knows how they hang together.

Reading needs no index, except for links; listing, links and facets come from the index. A write is one commit; what it
was based on is checked when it is made, so that no update is lost.
"""

from wikiholt.contents.contents import WikiPages

__all__ = ["WikiPages"]
