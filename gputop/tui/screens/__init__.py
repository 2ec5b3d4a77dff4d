"""The screens: main, mapping, problem (no driver), and the dialogs over them."""
