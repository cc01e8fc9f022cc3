"""The public names: a name here lives one minor version after its warning (see CONTRIBUTING.md)."""

import inspect
import re
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

import sfumato

ROOT = Path(__file__).resolve().parents[1]
# Of functions, the arguments that stay.
PUBLIC = {
    "sfumato": {
        "BudgetExceeded": "message left",
        "Curator": "",
        "LedgerError": "",
        "RecipeError": "",
        "Release": "",
        "ReleaseError": "",
        "SchemaError": "",
        "SfumatoError": "",
        "SourceError": "",
        "UnsupportedQuery": "",
        "VerificationFailed": "",
        "__version__": "",
        "from_frame": "frame unit max_records columns epsilon delta",
        "learn": "",
        "open": "path",
        "open_release": "folder epsilon",
        "recipes": "",
        "verify": "folder ledger",
    },
    "sfumato.recipes": dict.fromkeys(
        (
            "Additive",
            "CellCounts",
            "UserCounts",
            "FieldGroups",
            "AdaptiveGrid",
            "Adaptive",
            "Related",
            "Tree",
            "Linear",
            "Logistic",
        ),
        "table",
    ),
    "sfumato.learn": {
        **dict.fromkeys(("Additive", "Linear", "Logistic"), "table target inputs"),
        "open_model": "folder",
    },
    "sfumato.noise": {"discrete_laplace": "scale size", "discrete_gaussian": "sigma size"},
    "sfumato.accounting": {
        "gaussian_sigma": "epsilon delta sensitivity count",
        "gaussian_delta": "epsilon sigma sensitivity count",
    },
    "sfumato.inference": {
        "Domain": "",
        "Measurement": "columns values sigma queries",
        "estimate": "domain measurements total iterations seed",
    },
    "sfumato.metrics": {"pie_chart": "", "k_marginal": "", "taxi": "", "match3": ""},
    "sfumato.anonymity": {
        "anonymize": "table quasi_identifiers k sensitive",
        "measure_anonymity": "table quasi_identifiers sensitive",
    },
    "sfumato.local": {"randomized_response": "", "estimate_frequencies": ""},
    "sfumato.choose": dict.fromkeys(("exponential", "permute_and_flip", "noisy_max", "above_threshold"), ""),
    "sfumato.holdout": {"ReusableHoldout": ""},
    "sfumato.audit": {"audit": "mechanism neighbours epsilon delta runs"},
}
METHODS = {
    ("sfumato.curator", "Curator"): {
        "sql": "text",
        "release": "recipe epsilon delta out",
        "learn": "recipe epsilon delta out",
        "budget": "",
    },
    ("sfumato.sql.finish", "Answer"): {"to_arrow": "", "to_pandas": ""},
}


@pytest.mark.parametrize("package", PUBLIC)
def test_public_names_are_exported_and_take_their_arguments(package):
    module = import_module(package)
    for name, arguments in PUBLIC[package].items():
        assert name in module.__all__
        found = getattr(module, name)
        assert found.__doc__
        if arguments:
            assert set(arguments.split()) <= set(inspect.signature(found).parameters), name


@pytest.mark.parametrize(("package", "name"), METHODS)
def test_public_methods_take_their_arguments(package, name):
    for method, arguments in METHODS[package, name].items():
        found = getattr(getattr(import_module(package), name), method)
        assert set(arguments.split()) <= set(inspect.signature(found).parameters), method


def test_the_names_at_the_top_are_these():
    assert sorted(sfumato.__all__) == sorted(PUBLIC["sfumato"])


def test_the_version_is_the_newest_of_the_changelog():
    versions = re.findall(r"^## (\d+\.\d+\.\d+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert versions[0] == sfumato.__version__
    assert "version =" not in (ROOT / "pyproject.toml").read_text().partition("[tool.")[0]


def test_the_recipe_for_conda_needs_what_the_package_needs():
    recipe = (ROOT / "recipe" / "meta.yaml").read_text(encoding="utf-8")
    run = recipe.split("  run:\n")[1].split("\n\n")[0]
    listed = {line.strip(" -").replace("python-duckdb", "duckdb") for line in run.splitlines()}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = {each.replace(">=", " >=") for each in project["dependencies"]}
    assert listed == {*needed, f"python {project['requires-python']}"}
    assert f'version = "{sfumato.__version__}"' in recipe
