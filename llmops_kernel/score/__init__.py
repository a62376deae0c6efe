"""Scores a table with a model on the cluster: engines, replicas, input, output, evaluation."""
