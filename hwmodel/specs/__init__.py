"""Specs of descriptions: memories, controllers, accelerators, devices, model shapes."""
