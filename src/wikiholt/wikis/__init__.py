"""One wiki and all wikis: registry, keys, access, handles, pages, query log, evaluation."""
