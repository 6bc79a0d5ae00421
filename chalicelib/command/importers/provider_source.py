"""Parts that the translations of all providers share: variables, secrets to store, and groups of --nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from chalicelib.command.importers.autoscaler_input import Argument, AutoscalerInput, Variable
from chalicelib.command.importers.draft import Draft
from chalicelib.command.importers.report import Verdict
from chalicelib.command.importers.secret_commands import store_command
from chalicelib.model.errors import BadInput
from chalicelib.policy.diagnostics import Diagnostics, Scalar, quote
from chalicelib.policy.providers import PROVIDERS, section_of


class Source(msgspec.Struct, frozen=True):
    """Input of one translation. given: arguments by flag. name: of the cluster. secret_prefix: of the deployment's
    secrets."""

    read: AutoscalerInput
    given: Mapping[str, Sequence[Argument]]
    name: str
    secret_prefix: str
    region: str = ""
    cluster_id: str = ""
    credentials_secret: str = ""
    used: set[str] = msgspec.field(default_factory=set)  # names of variables that have a row

    def variable(self, *names: str) -> Variable | None:
        """Return the first variable with one of these names. It counts as used."""
        found = next((each for name in names for each in self.read.variables if each.name == name), None)
        if found is not None:
            self.used.add(found.name)
        return found

    def not_counting(self, draft: Draft, name: str, text: str) -> None:
        """Add a row for a variable that an option of the command replaces."""
        found = self.variable(name)
        if found is not None:
            draft.row(found.place, found.name, Verdict.TOLD, "", text)

    def secret(self, purpose: str) -> str:
        """Return the name of a secret, such as outscaler/shop/alicloud."""
        return f"{self.secret_prefix}{self.name}/{purpose}"

    def last(self, flag: str) -> Argument | None:
        """Return the argument that counts."""
        found = self.given.get(flag, ())
        return found[-1] if found else None


def object_at(source: Source, path: str) -> str:
    """Return the Secret or ConfigMap that is mounted at a path or at one of its folders."""
    fits = [m for m in source.read.mounts if m.object and (path == m.path or path.startswith(m.path.rstrip("/") + "/"))]
    return max(fits, key=lambda mount: len(mount.path)).object if fits else ""


def take(source: Source, draft: Draft, provider: str, key: str, *names: str, remedy: str = "") -> bool:
    """Copy a variable that is not secret. Return whether the input has it. One without a value is a mistake, whose
    remedy is --env unless another one is given."""
    found = source.variable(*names)
    if found is None:
        return False
    if found.value is None:
        where = f"comes from {found.object}, which is not in the input" if found.object else "has no value in the input"
        draft.problem(found.place, f"{found.name} {where}", f"add it, or give {remedy or f'--env {found.name}=VALUE'}")
        return True
    draft.provider[key] = found.value
    draft.row(found.place, found.name, Verdict.TRANSLATED, f"spec.providers.{provider}.{key}")
    return True


def store(source: Source, draft: Draft, key: str, purpose: str, found: Sequence[Variable], provider: str) -> None:
    """Name a secret for variables that hold one."""
    name = source.secret(purpose)
    if key == "credentialsSecret" and source.credentials_secret:
        name = source.credentials_secret
    draft.provider[key] = name
    objects = sorted({each.object for each in found if each.object})
    words = ", ".join(each.name for each in found) or key
    draft.row(
        found[0].place if found else source.read.place,
        words + (f": {', '.join(objects)}" if objects else ""),
        Verdict.TO_STORE,
        f"spec.providers.{provider}.{key}",
        f"{name}  {store_command(objects[0] if objects else '', name)}",
    )


def read_nodes(source: Source, draft: Draft, provider: str) -> None:
    """Copy --nodes as they are; those that the provider's own reader refuses are mistakes."""
    found = source.given.get("nodes", ())
    for index, argument in enumerate(found):
        draft.row(argument.place, argument.word, Verdict.TRANSLATED, f"spec.providers.{provider}.nodes")
        if "," in (argument.value or ""):
            text = f"{quote(argument.value or '')} is one group in Cluster Autoscaler"
            draft.problem(f"{argument.place}: --nodes: [{index}]", text, "give the flag twice")
            continue
        check_setting(provider, "nodes", argument, draft, index=index)
    if found:
        draft.provider["nodes"] = [argument.value or "" for argument in found]


def check_setting(provider: str, key: str, argument: Argument, draft: Draft, *, index: int) -> None:
    """Report a value that the provider's own reader of a setting refuses. index: of the flag's occurrence, from 0."""
    try:
        read_setting(provider, key, argument.value or "", f"{argument.place}: --{argument.flag}", (index,))
    except BadInput as error:
        draft.add(error)


def read_setting(provider: str, key: str, value: str, place: str, path: tuple[int, ...] = ()) -> None:
    """Read one value of a setting as the provider's section of a policy does. Raises BadInput."""
    report = Diagnostics(place)
    for field in section_of(PROVIDERS[provider]).fields:
        if field.key == key:
            field.kind.read(Scalar(value, plain=False, line=1, column=1), path, report)
    report.check()


def present(source: Source, *names: str) -> list[Variable]:
    """Return the variables with these names. They count as used."""
    found = [each for each in source.read.variables if each.name in names]
    source.used.update(each.name for each in found)
    return found
