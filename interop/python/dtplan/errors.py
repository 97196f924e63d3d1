"""Exceptions and warnings of the package. Their texts are the words of the program."""


class DtplanError(Exception):
    """A plan was not made, or cannot be used.

    >>> issubclass(InputError, DtplanError) and issubclass(InfeasibleError, DtplanError)
    True
    """


class InputError(DtplanError, ValueError):
    """A module, a file, a mesh or an option is not what it has to be.

    >>> issubclass(InputError, ValueError)
    True
    """


class InfeasibleError(DtplanError):
    """No plan fits into the memory limit.

    >>> issubclass(InfeasibleError, ValueError)
    False
    """


class DtplanWarning(UserWarning):
    """What a plan or an import assumes, and what it leaves out.

    >>> issubclass(DtplanWarning, UserWarning)
    True
    """
