"""Builds inputs of the translation from words of a command line."""

from __future__ import annotations

from chalicelib.cli.migrate.autoscaler_input import (
    Argument,
    AutoscalerInput,
    Variable,
    VariableOrigin,
)


def argument(word: str) -> Argument:
    """One word such as --v=4, in line 3 of a file."""
    flag, equals, value = word.lstrip("-").partition("=")
    return Argument("deploy.yaml:3", word, flag, value if equals else None)


def autoscaler(
    *words: str, variables: tuple[Variable, ...] = (), version: tuple[int, int] | None = None
) -> AutoscalerInput:
    """One autoscaler with these arguments."""
    return AutoscalerInput(
        "deploy.yaml:1",
        "Deployment",
        name="cluster-autoscaler",
        arguments=tuple(argument(word) for word in words),
        variables=variables,
        version=version,
    )


def literal(name: str, value: str) -> Variable:
    """A variable with a known value."""
    return Variable("deploy.yaml:9", name, value)


def hidden(name: str, at: str = "kube-system/cloud-config") -> Variable:
    """A variable from a Secret."""
    return Variable("deploy.yaml:9", name, None, VariableOrigin.OF_SECRETS, at, name.lower())
