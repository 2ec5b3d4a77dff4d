"""Parts of a screen: line widgets that draw with render_line and know no neighbours."""
