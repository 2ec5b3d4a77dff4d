"""Line widgets: each draws with render_line and knows nothing of its neighbours."""
