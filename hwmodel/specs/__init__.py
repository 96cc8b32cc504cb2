"""What a description may say: memories, controllers, accelerators, devices, model shapes."""
