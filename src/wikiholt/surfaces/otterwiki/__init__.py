"""Wikiholt inside Otterwiki: hooks wake the sync of the request's own wiki; API and pages in the wiki itself."""
