"""Tests of the model: pure functions, no driver."""
