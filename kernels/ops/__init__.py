"""Workloads that come with gpuperf, one in each file; gpuperf loads every file of this package."""
