"""The workloads that come with gpuperf, one a file; found by walking this package."""
