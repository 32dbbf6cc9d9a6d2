"""The nouns of gpuperf: frozen values and their JSON. Nothing here touches hardware."""
