"""Tests of the stand-in's API server."""
