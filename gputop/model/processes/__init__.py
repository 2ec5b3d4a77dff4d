"""Which processes are shown: filter, views, order, those that ended recently."""
