"""The settings of a session: PostgreSQL's that clients read and change, and the price of plain statements."""

from __future__ import annotations

import tomllib
from fractions import Fraction
from importlib.resources import files

from sfumato.core import __version__
from sfumato.core.errors import RecipeError
from sfumato.core.exact import format_exact, parse_exact, parse_positive
from sfumato.serve.catalog.tables import Column
from sfumato.serve.wire.answers import Rows
from sfumato.serve.wire.messages import Refusal
from sfumato.serve.wire.values import TEXT

SERVER_VERSION = f"15.0 (sfumato {__version__})"
EPSILON = "sfumato.epsilon"
SESSION_BUDGET = "sfumato.session_budget"
INTERVALS = "sfumato.intervals"

_SETTINGS = tomllib.loads(files(__package__).joinpath("settings.toml").read_text("utf-8"))
_REPORTED: dict[str, str] = {name.lower(): name for name in _SETTINGS["reported"]}
_FIXED: dict[str, str] = {"server_version": SERVER_VERSION, **_SETTINGS["fixed"]}
_DEFAULTS: dict[str, str] = _SETTINGS["defaults"]
_MOST = 200
_LONGEST = 1000


class SessionSettings:
    """The settings of one session; what a transaction changed goes back with it.

    `given` are those that the client began with, `budget` is what it may spend unless it says otherwise.

    >>> settings = SessionSettings([("sfumato.epsilon", "0.1")], user="ana")
    >>> settings.epsilon, settings["TimeZone"]
    (Fraction(1, 10), 'UTC')
    """

    def __init__(self, given: list[tuple[str, str]], *, user: str, budget: Fraction | None = None) -> None:
        self._values = {**_DEFAULTS, **_FIXED, "session_authorization": user}
        if budget is not None:
            self._values[SESSION_BUDGET] = format_exact(budget)
        self._told: dict[str, str] = {}
        self._before: dict[str, str] | None = None
        self._local: dict[str, str | None] = {}
        for name, value in given:
            self.change(name, value)
        self._start = dict(self._values)

    def __getitem__(self, name: str) -> str:
        try:
            return self._values[name.lower()]
        except KeyError:
            raise Refusal("42704", f"there is no setting {name[:63]!r}") from None

    def to_dict(self) -> dict[str, str]:
        """Returns all settings with their values, in order."""
        return dict(sorted(self._values.items()))

    @property
    def epsilon(self) -> Fraction | None:
        """The price of a plain SELECT, if there is one."""
        return Fraction(self._values[EPSILON]) if self._values[EPSILON] else None

    @property
    def session_budget(self) -> Fraction | None:
        """The most that the session may spend, if it is bounded."""
        return Fraction(self._values[SESSION_BUDGET]) if self._values[SESSION_BUDGET] else None

    @property
    def intervals(self) -> bool:
        """Whether answers have columns for the ends of their intervals."""
        return self._values[INTERVALS] != "off"

    @property
    def wants_notices(self) -> bool:
        """Whether the client wants to read notices."""
        return self._values["client_min_messages"].lower() not in ("warning", "error", "fatal", "panic")

    def change(self, name: str, value: str, *, local: bool = False) -> None:
        """Sets `name`; `local` until the end of the transaction."""
        name = name.lower()
        value = _check(name, value)
        if name not in self._values and len(self._values) >= _MOST:
            raise Refusal("54000", f"a session has at most {_MOST} settings")
        if local and self._before is not None:
            self._local.setdefault(name, self._values.get(name))
        self._values[name] = value

    def reset(self, name: str) -> None:
        """Sets `name`, or "all", to what it was at the start of the session."""
        if name == "all":
            self._values = dict(self._start)
        elif name in self._start:
            self._values[name] = self._start[name]
        elif self._values.pop(name, None) is None:
            raise Refusal("42704", f"there is no setting {name[:63]!r}")

    def begin(self) -> None:
        """Remembers the settings at the beginning of a transaction."""
        self._before = dict(self._values)
        self._local = {}

    def end(self, *, keep: bool) -> None:
        """Ends the transaction; unless it is to `keep` what was set, that is forgotten."""
        if self._before is not None and not keep:
            self._values = self._before
        elif self._before is not None:
            for name, value in self._local.items():
                if value is None:
                    self._values.pop(name, None)
                else:
                    self._values[name] = value
        self._before = None

    def show(self, name: str) -> Rows:
        """Returns what SHOW answers: one setting, or "all" of them."""
        if name == "all":
            values: list[tuple[object, ...]] = [(*pair, "") for pair in self.to_dict().items()]
            columns = tuple(Column(key, TEXT) for key in ("name", "setting", "description"))
            return Rows(columns=columns, source=values, stretch=range(len(values)), word="SHOW")
        column = Column(_REPORTED.get(name, name), TEXT)
        return Rows(columns=(column,), source=[(self[name],)], stretch=range(1), word="SHOW")

    def news(self) -> list[tuple[str, str]]:
        """Returns the settings to tell the client of, as they changed since the last time."""
        found = []
        for name, spelling in _REPORTED.items():
            if self._told.get(name) != self._values[name]:
                self._told[name] = self._values[name]
                found.append((spelling, self._values[name]))
        return found


def _check(name: str, value: str) -> str:
    if not name or len(name) > 63 or len(value) > _LONGEST or "\0" in value:
        raise Refusal(
            "22023", f"a setting has a name of at most 63 and a value of at most {_LONGEST} characters"
        )
    if name in _FIXED or name == "session_authorization":
        if value.lower() == _FIXED.get(name, "").lower():
            return _FIXED[name]
        raise Refusal("55P02", f"{name} cannot be changed")
    if name == "client_encoding":
        # asyncpg sends it in quotes.
        if value.strip("'").lower().replace("-", "").replace("_", "") not in ("utf8", "unicode"):
            raise Refusal("22023", "client_encoding is UTF8 here, for every client")
        return "UTF8"
    if name == "datestyle":
        if not {word.strip().upper() for word in value.split(",")} <= {"ISO", "MDY", "DMY", "YMD"}:
            raise Refusal("22023", "DateStyle is ISO here, for every client")
        return "ISO, MDY"
    if name in (EPSILON, SESSION_BUDGET) and value:
        return _check_amount(name, value)
    if name == INTERVALS:
        value = value.strip().lower()
        if value not in ("off", "columns"):
            raise Refusal("22023", f"{name} is off or columns")
    if name.startswith("sfumato.") and name not in _DEFAULTS:
        known = f"{EPSILON}, {SESSION_BUDGET} and {INTERVALS}"
        raise Refusal("42704", f"there is no setting {name!r}; there are {known}")
    return value


def _check_amount(name: str, value: str) -> str:
    try:
        amount = parse_positive(value, name=name) if name == EPSILON else parse_exact(value, name=name)
    except RecipeError as error:
        raise Refusal("22023", str(error)) from None
    if amount < 0:
        raise Refusal("22023", f"{name} must not be below zero")
    return value.strip()
