"""The screens: main, problem (no driver), and the dialogs over them."""
