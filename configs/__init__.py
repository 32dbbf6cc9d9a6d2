"""Data files of gpuperf: devices (their peaks), read as package resources."""
