"""The cost and benefit of the plugin in an Otterwiki."""
