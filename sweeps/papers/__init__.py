"""Published tables reproduced, a package a paper."""
