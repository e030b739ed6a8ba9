"""Two small wikis to try everything on: an allotment association's handbook and a software team's runbook."""

from wikiholt.surfaces.cli.demo_wikis.queries import DEMO_QUERIES, DemoQuery
from wikiholt.surfaces.cli.demo_wikis.writing import write_demo_wikis

__all__ = ["DEMO_QUERIES", "DemoQuery", "write_demo_wikis"]
