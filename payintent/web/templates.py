"""The Jinja environment of a folder of templates: all is escaped, and nothing may be undefined."""

from jinja2 import Environment, PackageLoader, StrictUndefined


def make_environment(folder: str) -> Environment:
    environment = Environment(
        loader=PackageLoader("payintent", folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,  # a template does not change while the process runs
    )
    environment.policies["json.dumps_kwargs"] = {"ensure_ascii": False}  # a third smaller in Thai
    return environment
