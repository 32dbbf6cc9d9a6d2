"""Measure workloads: the only package that touches hardware or imports a workload's file."""
