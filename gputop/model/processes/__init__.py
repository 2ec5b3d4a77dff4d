"""Which processes are shown: the listing, filter, views, order, those that ended recently."""
