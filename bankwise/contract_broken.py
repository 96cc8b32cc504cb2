"""What the contract kit raises: apart, as who asks for it alone loads nothing heavy."""


class ContractBroken(AssertionError):
    """What a plug-in does not keep, in one sentence."""
