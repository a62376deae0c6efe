"""Sends what a run journals to trackers: Comet, MLflow, TensorBoard, Trackio, W&B."""
