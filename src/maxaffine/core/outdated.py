"""Files of earlier versions that are not read any more: why, and the command that makes them anew."""

from collections.abc import Mapping
from typing import Any

from maxaffine.core.errors import BadInput


def refuse_outdated(record: Mapping[str, Any]) -> None:
    """BadInput where a product is stored as all combinations of its factors' clusters, as it was before files held factors."""
    plan, layer, target = (record.get(name) for name in ("plan", "layer", "target"))
    if not (isinstance(plan, dict) and isinstance(layer, dict) and isinstance(target, dict)):
        return  # what is malformed is refused where it is read
    rows = plan.get("groups") if plan.get("plan") == "sums" else [plan]
    products = isinstance(rows, list) and any(isinstance(row, dict) and "factors" in row for row in rows)
    if "factors" in layer or not products:
        return
    box = target["box"]
    sides = ",".join(f"{name}={low!r}:{high!r}" for name, low, high in zip(box["names"], box["low"], box["high"], strict=True))
    asked = f'"{target["text"]}" --box {sides} --error {record["error"]!r} --method products --dtype {layer["dtype"]}'
    raise BadInput(
        "the file holds a product as all combinations of its factors' clusters, which earlier versions stored; files hold the "
        f"factors now. Make it anew: maxaffine compile {asked} --out FILE"
    )
