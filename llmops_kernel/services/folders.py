"""Folders of this user: runs and clusters in the home folder, models in the cache."""

from __future__ import annotations

from llmops_kernel.store.files import private_folder, readable_by_others
from llmops_kernel.store.paths import CACHE_ENV_VAR, HOME_ENV_VAR, cache, home

__all__ = ["CACHE_ENV_VAR", "HOME_ENV_VAR", "cache", "home", "private_folder", "readable_by_others"]
