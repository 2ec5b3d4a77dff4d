"""Parts of screens: tables, editors, graphs and lines, and the code that arranges them."""
