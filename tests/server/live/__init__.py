"""Tests of the live websocket."""
