"""Engines that stay on the cluster between jobs."""
