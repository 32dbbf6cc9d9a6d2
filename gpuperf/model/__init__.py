"""Define the values of gpuperf (cases, records, costs, peaks) and their JSON, without hardware."""
