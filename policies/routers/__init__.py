"""Routers: which card a request goes to as it arrives."""
