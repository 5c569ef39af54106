"""Jinja environments: values are escaped, and undefined variables are errors."""

from jinja2 import Environment, PackageLoader, StrictUndefined


def make_environment(folder: str) -> Environment:
    environment = Environment(
        loader=PackageLoader("payintent", folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,  # templates do not change while a process runs
    )
    environment.policies["json.dumps_kwargs"] = {
        "ensure_ascii": False
    }  # Thai text becomes a third smaller
    return environment
