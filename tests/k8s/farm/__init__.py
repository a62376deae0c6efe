"""Tests of the stand-in's operator, scheduler, kubelets and Kueue."""
