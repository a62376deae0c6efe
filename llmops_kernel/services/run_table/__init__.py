"""All runs of a store as one table that is filtered, sorted and exported."""
